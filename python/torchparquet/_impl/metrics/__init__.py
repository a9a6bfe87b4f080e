"""Metrics: the speed of reading, and the slower side."""
