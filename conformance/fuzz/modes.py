"""The three ways to play a sequence."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Mode: TypeAlias = Literal["differential", "interop", "model"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""`differential`: the client against the oracle, each on its own prefix. `interop`: client and oracle take turns on one
prefix, compared with the oracle alone on another. `model`: the oracle against the model."""
