"""Speed of a client relative to the oracle, in one session on one Redis: measures, ratios, and gates."""
