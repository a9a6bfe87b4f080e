"""Faults, kills and long runs, and counts of what comes of them."""
