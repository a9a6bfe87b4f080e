"""The machine, verdicts and tables of results."""
