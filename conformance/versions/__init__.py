"""Differences between two versions of BullMQ, and the releases that introduced them."""
