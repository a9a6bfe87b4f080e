"""Statistics of columns, from one pass over the rows of a data set."""
