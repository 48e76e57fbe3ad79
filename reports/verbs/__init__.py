"""What the Spark verbs do: one module per verb, from its options to what the user sees."""
