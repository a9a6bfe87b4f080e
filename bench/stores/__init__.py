"""A simulated store, and those that read from it."""
