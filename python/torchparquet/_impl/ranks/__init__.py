"""Ranks: finding the rank of this process, and checking that ranks agree."""
