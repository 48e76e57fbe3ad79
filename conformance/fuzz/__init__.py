"""Sequences that nobody wrote: generated from the model, run on two clients, compared after every step, shrunk."""
