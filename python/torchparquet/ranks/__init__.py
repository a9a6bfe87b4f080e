"""Ranks: who this process is among them, and whether they agree."""
