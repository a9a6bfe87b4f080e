"""Files with mutations, and the check of what reading them gives."""
