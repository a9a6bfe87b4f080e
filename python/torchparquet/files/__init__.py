"""Files: finding them, what their footers say, and whether they agree."""
