"""Timed passes over files, and the content that each of them has read."""
