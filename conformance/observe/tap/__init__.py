"""The tap: the RESP-aware proxy between one client and Redis. It observes, delays, cuts, at an exact command.

Start with `conformance.observe.tap.tap.Tap` (`docs/reference/tap.md`). This file imports nothing, so that the checks
over recorded commands (`conformance.checkers.traffic`) do not load a proxy.
"""
