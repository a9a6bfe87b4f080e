"""Files: finding them, reading their footers, and checking that they agree."""
