"""Tools: one room for each command."""
