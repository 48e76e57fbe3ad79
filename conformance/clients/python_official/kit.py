"""The kit's half of a driver, loaded by its path: this folder runs where only the client is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_serve", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_serve = _load(Path(__file__).resolve().parents[2] / "driver" / "serve.py")

DriverServer = _serve.DriverServer
OpError = _serve.OpError
Unsupported = _serve.Unsupported
