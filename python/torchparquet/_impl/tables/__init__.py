"""Files that the metadata of tables name."""
