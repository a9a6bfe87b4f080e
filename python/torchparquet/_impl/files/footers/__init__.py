"""Footers: read from files, with their keys and schemas."""
