"""The canonical rules, by what they speak about; `conformance.observe.canonical` lists and applies them."""
