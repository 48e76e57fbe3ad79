"""Driver protocol, version 1: how the kit talks to a client in any language."""
