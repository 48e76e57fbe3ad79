"""The compiled parser of RDB files: built once, and called through C.

The Rust source is next to this module. A parser in Python takes 100 times as long, and the packages that read RDB
files skip streams, which hold most of BullMQ's data.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.prepare import announce
from conformance.problems import EnvironmentProblem, UsageProblem

PAGE_BYTES = 32 * 1024 * 1024
"""About so much of the values of keys is in memory at a time."""

KEY_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("expires_ms", "before", "first", "count")),
        *((name, np.int64) for name in ("first_score", "first_entry", "entries", "trimmed")),
        *((name, np.int32) for name in ("kind", "is_whole")),
    ]
)
"""A key, or a piece of one that goes on in the next page (`src/columns.rs`, KeyRecord)."""

_BUILD = ClientBuild(
    client="bullmq-rdb",
    folder=Path(__file__).parent,
    step=BuildStep(
        toolchain="rust",
        command=("cargo", "build", "--release", "--locked", "--offline", "--target-dir", "{work}"),
        program=f"release/libbullmq_rdb.{'dylib' if sys.platform == 'darwin' else 'so'}",
        lock="Cargo.lock",
        sources=("Cargo.toml", "Cargo.lock", "src"),
    ),
    kind="library",
)


class _TextsView(ctypes.Structure):
    _fields_ = (("offsets", ctypes.c_void_p), ("bytes", ctypes.c_void_p), ("count", ctypes.c_size_t))


class _PageView(ctypes.Structure):
    _fields_ = (
        ("records", ctypes.c_void_p),
        ("keys", _TextsView),
        ("names", _TextsView),
        ("values", _TextsView),
        ("scores", ctypes.c_void_p),
        ("score_count", ctypes.c_size_t),
        ("entry_ids", _TextsView),
        ("entry_sizes", ctypes.c_void_p),
        ("fact_names", _TextsView),
        ("fact_values", _TextsView),
    )


@dataclass(frozen=True, kw_only=True)
class RdbPage:
    """Some keys of a file. `records` are `KEY_RECORD`s, and say where in the columns each key has its values.

    `names` and `values` belong together: fields of hashes and of streams; elements of other types have empty names.
    """

    records: Any
    keys: pa.Array
    names: pa.Array
    values: pa.Array
    scores: Any
    entry_ids: pa.Array
    entry_sizes: Any


class RdbReader:
    """A file that is being read. `pages` may be asked for once; `facts` are complete with the first page."""

    def __init__(self, path: Path, data: mmap.mmap, library: Any, handle: int) -> None:
        self._path = path
        self._data = data
        self._library = library
        self._handle = ctypes.c_void_p(handle)

    def pages(self, most_bytes: int = PAGE_BYTES) -> Iterator[RdbPage]:
        """All keys that are wanted, page by page. Raises UsageProblem where the file cannot be read to its end."""
        more = 1
        while more == 1:
            more = self._library.rdb_read(self._handle, most_bytes)
            if more < 0:
                raise UsageProblem(
                    f"{self._path} cannot be read: {self._refusal()}",
                    hint="take it again with SAVE or `redis-cli --rdb`",
                )
            page = _page_of(self._view())
            self._forget_what_is_behind()
            yield page

    def _forget_what_is_behind(self) -> None:
        """Give back the memory in which the file was: it is read once, and may be larger than the memory."""
        behind = self._library.rdb_place(self._handle) // mmap.PAGESIZE * mmap.PAGESIZE
        if behind and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED, 0, behind)

    def facts(self) -> Mapping[str, str]:
        """The metadata of the file, such as `redis-ver`, `ctime` (s) and `used-mem`; `keys` of the database."""
        view = self._view()
        names, values = (_texts(column).view(pa.binary()).to_pylist() for column in (view.fact_names, view.fact_values))
        return {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in zip(names, values, strict=True)
        }

    def _view(self) -> _PageView:
        view = _PageView()
        self._library.rdb_page(self._handle, ctypes.byref(view))
        return view

    def _refusal(self) -> str:
        text = ctypes.c_void_p()
        size = self._library.rdb_refusal(self._handle, ctypes.byref(text))
        return _bytes_at(text.value, size).decode("utf-8", "replace")


@contextmanager
def open_rdb(path: Path, prefix: bytes, database: int) -> Iterator[RdbReader]:
    """Read the keys of one database with this prefix. Raises UsageProblem if the file is not an RDB file.

    Raises EnvironmentProblem where the parser cannot be built.
    """
    data = _mapped(path)
    library = _library()
    place = np.frombuffer(data, np.uint8).ctypes.data
    handle = library.rdb_open(place, len(data), prefix, len(prefix), database)
    try:
        yield RdbReader(path, data, library, handle)
    finally:
        library.rdb_close(ctypes.c_void_p(handle))


def _mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, which the system reads as they are needed."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise UsageProblem(f"{path} cannot be read: {reason}", hint="give an RDB file, such as dump.rdb") from error


@functools.cache
def _library() -> Any:
    try:
        library = ctypes.CDLL(str(_BUILD.ensure(announce)))
    except OSError as error:
        raise EnvironmentProblem(f"the parser of RDB files cannot be loaded: {error}", hint=_BUILD.tool.hint) from error
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.rdb_open.argtypes = (pointer, size, ctypes.c_char_p, size, ctypes.c_uint64)
    library.rdb_open.restype = pointer
    library.rdb_read.argtypes = (pointer, size)
    library.rdb_read.restype = ctypes.c_int32
    library.rdb_place.argtypes = (pointer,)
    library.rdb_place.restype = size
    library.rdb_page.argtypes = (pointer, ctypes.POINTER(_PageView))
    library.rdb_page.restype = None
    library.rdb_refusal.argtypes = (pointer, ctypes.POINTER(pointer))
    library.rdb_refusal.restype = size
    library.rdb_close.argtypes = (pointer,)
    library.rdb_close.restype = None
    return library


def _page_of(view: _PageView) -> RdbPage:
    """A copy of what the library shows until it is called again."""
    return RdbPage(
        records=_numbers(view.records, view.keys.count, KEY_RECORD),
        keys=_texts(view.keys),
        names=_texts(view.names),
        values=_texts(view.values),
        scores=_numbers(view.scores, view.score_count, np.dtype(np.float64)),
        entry_ids=_texts(view.entry_ids),
        entry_sizes=_numbers(view.entry_sizes, view.entry_ids.count, np.dtype(np.int64)),
    )


def _texts(view: _TextsView) -> pa.Array:
    offsets = _bytes_at(view.offsets, 4 * (view.count + 1))
    size = int(np.frombuffer(offsets, np.int32)[-1])
    buffers = [pa.py_buffer(offsets), pa.py_buffer(_bytes_at(view.bytes, size))]
    return pa.StringArray.from_buffers(view.count, *buffers)


def _numbers(place: int | None, count: int, kind: Any) -> Any:
    return np.frombuffer(_bytes_at(place, count * kind.itemsize), kind)


def _bytes_at(place: int | None, size: int) -> bytes:
    return ctypes.string_at(place, size) if place and size else b""
