"""Iteration: epochs, positions within them, and states."""
