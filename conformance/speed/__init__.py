"""How fast a client is beside the oracle, in one session on one Redis: measures, ratios, and gates on them."""
