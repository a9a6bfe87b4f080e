"""Files of object stores and other file systems: listing, identity, addresses, bytes."""
