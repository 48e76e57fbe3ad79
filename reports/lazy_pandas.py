"""Lazy import of pandas by Arrow, which imports it for its first array: that takes a third of a second."""

from __future__ import annotations

import sys

import pyarrow as pa


class _HiddenPandas:
    """A finder of modules that finds no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def import_pandas_lazily() -> None:
    """Hide pandas while Arrow searches for it, once per process.

    Conversions to pandas still work: they search again (tried with pyarrow 26).
    """
    finder = _HiddenPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
