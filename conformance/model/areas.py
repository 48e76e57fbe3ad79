"""The table of all modelled operations: importing this module loads every module that answers some."""

from __future__ import annotations

import importlib
from typing import Final

from conformance.model.stage import ANSWERERS

__all__ = ["ANSWERERS", "AREAS"]

AREAS: Final = (
    "adding",
    "claiming",
    "deduplication",
    "editing",
    "finishing",
    "flows",
    "getters",
    "lifecycle",
    "limits",
    "locks",
    "maintenance",
    "metrics",
    "removing",
    "retries",
    "scheduler_getters",
    "schedulers",
    "stalled",
)
"""The modules that answer operations."""

for _area in AREAS:
    importlib.import_module(f"conformance.model.{_area}")
