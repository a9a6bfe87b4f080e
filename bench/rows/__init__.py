"""The rows of the table: what is measured against whom, and what is held to be enough."""
