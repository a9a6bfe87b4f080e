"""Batches: columns as tensors, on the host or a device."""
