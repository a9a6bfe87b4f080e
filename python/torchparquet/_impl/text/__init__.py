"""Text: columns of strings as token files."""
