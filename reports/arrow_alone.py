"""Arrow without pandas: it looks for pandas at the first array, and importing that takes a third of a second."""

from __future__ import annotations

import sys

import pyarrow as pa


class _NoPandas:
    """A finder that knows for sure that there is no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def keep_arrow_alone() -> None:
    """Let Arrow find no pandas when it looks for it, which it does once in a process.

    Who converts to pandas later still can: a conversion looks for it again (tried with pyarrow 26).
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
