"""The cost of threads to each other."""
