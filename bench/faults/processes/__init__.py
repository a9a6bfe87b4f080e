"""Processes that are forked to end or to be killed: what they do, and what becomes of it."""
