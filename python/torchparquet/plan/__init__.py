"""The pure plan: which rows each share gets, in what order and in which batch."""
