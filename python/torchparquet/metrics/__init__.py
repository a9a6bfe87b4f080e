"""Metrics: how fast a process reads, and which side is slower."""
