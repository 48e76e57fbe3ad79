"""Driver protocol, version 1: how the kit communicates with a client in any language."""
