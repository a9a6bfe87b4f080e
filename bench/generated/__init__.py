"""The files that benches read, generated from seeds."""
