"""The work of the Spark verbs: one module per verb, from its options to what the user sees."""
