"""The comparisons of single tables; `conformance.observe.diff` puts them together."""
