"""What may come next: strategies for data, options and steps. They look at the world only, never at a client."""
