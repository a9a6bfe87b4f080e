"""What the user's functions make of batches."""
