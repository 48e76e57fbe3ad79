"""One module for each part of a client that may be broken."""
