"""Generated sequences of calls: drawn from the model, run on two clients, compared after every step, and shrunk."""
