"""What Redis holds: read everything under a key prefix, put it into canonical form, and compare two of them."""
