"""Reading: streams of batches from the native reader."""
