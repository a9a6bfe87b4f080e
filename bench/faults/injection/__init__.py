"""Faults of the system, put before a reader in a child process, and the check of what it does."""
