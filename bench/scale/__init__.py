"""Starts of jobs of many ranks, simulated."""
