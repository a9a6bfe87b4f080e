"""Files of object stores and other file systems: listing, stamp, addresses, bytes."""
