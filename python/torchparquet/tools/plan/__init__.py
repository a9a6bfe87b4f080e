"""`torchparquet plan`: what each rank will read."""
