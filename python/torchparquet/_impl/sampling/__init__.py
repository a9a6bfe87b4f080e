"""Samples: which rows an epoch has, how often, and in which order."""
