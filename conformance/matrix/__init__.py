"""A matrix of clients: each alone, and every two of them on shared queues."""
