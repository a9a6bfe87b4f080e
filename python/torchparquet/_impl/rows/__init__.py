"""Which rows of the row groups are read: conditions, row numbers, splits."""
