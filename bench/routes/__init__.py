"""The readers that are compared."""
