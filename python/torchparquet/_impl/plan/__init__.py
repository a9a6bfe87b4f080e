"""The pure plan: the rows of each share, their order and their batches."""
