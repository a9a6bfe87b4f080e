"""Decoded rows, addressed by number."""
