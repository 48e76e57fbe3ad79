"""Faults and what becomes of jobs under them: real clients, real Redis, a recorded history, pure checks.

Start with `chaos.runner.run_chaos`; `docs/how-to/chaos.md` shows how to use it.
"""
