"""Broken clients that nobody wrote: small changes to the official Lua scripts and to the reference client."""
