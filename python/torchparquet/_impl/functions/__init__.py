"""The user's functions, and what they make of batches."""
