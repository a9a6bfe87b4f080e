"""Mixing: batches and rows of several data sets, and rows one by one."""
