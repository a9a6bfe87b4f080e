"""Row groups without a row that counts, found without reading their values."""
