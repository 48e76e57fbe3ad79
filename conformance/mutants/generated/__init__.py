"""Generated broken clients: small changes to the official Lua scripts and to the reference client."""
