"""Helpers for training frameworks; each module imports its own framework."""
