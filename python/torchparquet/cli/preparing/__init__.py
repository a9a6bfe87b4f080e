"""Reads and writes files as they are stored, on one machine or several."""
