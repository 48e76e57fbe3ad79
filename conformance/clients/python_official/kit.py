"""The kit's half of a driver, loaded by its path: this folder runs where only the client is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_serve", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_serve = _load(Path(__file__).resolve().parents[2] / "driver" / "serve.py")

_Server: Any = _serve.DriverServer
OpError = _serve.OpError
Unsupported = _serve.Unsupported

DEFAULT_DEADLINE_MS = 5000

_deadline_ms: ContextVar[float] = ContextVar("deadline_ms", default=DEFAULT_DEADLINE_MS)


class DriverServer(_Server):  # type: ignore[misc]  # loaded by its path, so its type is not known here
    """The kit's server, with the deadline of each call known to its handler."""

    def receive(self, line: bytes) -> None:
        """See `DriverServer.receive`. The call becomes a task, and a task starts with a copy of this context."""
        message = json.loads(line)
        if isinstance(message, dict):
            _deadline_ms.set(message.get("deadline_ms", DEFAULT_DEADLINE_MS))
        super().receive(line)


def deadline_ms() -> float:
    """Return how long (ms) the kit waits for the answer to the call at hand."""
    return _deadline_ms.get()
