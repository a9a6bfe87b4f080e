"""`torchparquet plan`: the share of each rank."""
