"""Strategies for data, options and steps. They depend on the model's state, never on a client."""
