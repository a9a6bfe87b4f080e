"""Rows as sequences: packed to one length, or batched by their length."""
