"""The compiled part of digests: built once, and called through C with the columns of Arrow as they are in memory.

If it cannot be built, `reports.snapshot.digests.plain` does the same more slowly.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.prepare import announce
from conformance.problems import EnvironmentProblem
from reports.snapshot.digests import plain
from reports.snapshot.digests.records import EVENT_RECORD, HISTORY_RECORD, JOB_RECORD, Keys

_FOLDER = Path(__file__).parent
_SOURCES = ("Cargo.toml", "Cargo.lock", "src")

_BUILD = ClientBuild(
    client="bullmq-digests",
    folder=_FOLDER,
    step=BuildStep(
        toolchain="rust",
        command=("cargo", "build", "--release", "--locked", "--offline", "--target-dir", "{work}"),
        program=f"release/libbullmq_digests.{'dylib' if sys.platform == 'darwin' else 'so'}",
        lock="Cargo.lock",
        sources=_SOURCES,
    ),
    kind="library",
)


class _TextColumnView(ctypes.Structure):
    _fields_ = (("offsets", ctypes.c_void_p), ("bytes", ctypes.c_void_p))


class _MapColumnView(ctypes.Structure):
    _fields_ = (("offsets", ctypes.c_void_p), ("names", _TextColumnView), ("values", _TextColumnView))


@functools.cache
def fingerprint() -> str:
    """Which digests these are: two that were made by different sources mean nothing to each other."""
    digest = hashlib.sha256()
    for path in sorted((_FOLDER / "src").glob("*.rs")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def library_path() -> Path:
    """The path of the library, which is built if needed. Raises EnvironmentProblem."""
    return _BUILD.ensure(announce)


@functools.cache
def fingerprint_here() -> str:
    """The kind of digests that this machine makes."""
    return fingerprint() if _is_built() else plain.KIND


@functools.cache
def _is_built() -> bool:
    try:
        _library()
    except EnvironmentProblem:
        return False
    return True


def keys_of_columns(queues: pa.Array, ids: pa.Array) -> Keys:
    """A number for each job, by queue and id."""
    if not _is_built():
        return plain.keys_of_columns(queues, ids)
    found: Keys = np.empty(len(ids), np.uint64)
    views = [_texts_view(column) for column in (queues, ids)]
    _library().digest_keys(*map(ctypes.byref, views), len(ids), found.ctypes.data)
    return found


def job_records(queues: pa.Array, ids: pa.Array, fields: pa.MapArray, prefix: bytes) -> Any:
    """A `JOB_RECORD` for each job."""
    if not _is_built():
        return plain.job_records(queues, ids, fields, prefix)
    found = np.empty(len(ids), JOB_RECORD)
    begin = prefix + b":"
    views = [_texts_view(queues), _texts_view(ids), _maps_view(fields)]
    _library().digest_jobs(*map(ctypes.byref, views), len(ids), begin, len(begin), found.ctypes.data)
    return found


def event_records(texts: Sequence[pa.Array], fields: pa.MapArray, prefix: bytes) -> Any:
    """An `EVENT_RECORD` for each event. `texts`: its queue, job, name, and id, column by column."""
    if not _is_built():
        return plain.event_records(texts, fields, prefix)
    found = np.empty(len(fields), EVENT_RECORD)
    begin = prefix + b":"
    views = [*map(_texts_view, texts), _maps_view(fields)]
    _library().digest_events(*map(ctypes.byref, views), len(fields), begin, len(begin), found.ctypes.data)
    return found


def histories(keys: Keys, contents: Keys, added_ms: npt.NDArray[np.int64], flags: npt.NDArray[np.uint32]) -> Any:
    """A `HISTORY_RECORD` for each job that has events. The columns are of events in the order of their streams."""
    if not _is_built():
        return plain.histories(keys, contents, added_ms, flags)
    columns = [np.ascontiguousarray(column) for column in (keys, contents, added_ms, flags)]
    found = np.empty(len(keys), HISTORY_RECORD)
    count = _library().digest_histories(*(column.ctypes.data for column in columns), len(keys), found.ctypes.data)
    return found[:count]


def _texts_view(column: pa.Array) -> _TextColumnView:
    """The buffers of a column of 32-bit texts; the column has to outlive the view."""
    _, offsets, data = column.buffers()
    return _TextColumnView(offsets.address + 4 * column.offset, data.address if data is not None else None)


def _maps_view(column: pa.MapArray) -> _MapColumnView:
    offsets = column.buffers()[1].address + 4 * column.offset
    return _MapColumnView(offsets, _texts_view(column.keys), _texts_view(column.items))


@functools.cache
def _library() -> Any:
    try:
        library = ctypes.CDLL(str(library_path()))
    except OSError as error:
        raise EnvironmentProblem(f"the library of digests cannot be loaded: {error}", hint=_BUILD.tool.hint) from error
    texts, maps = ctypes.POINTER(_TextColumnView), ctypes.POINTER(_MapColumnView)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.digest_keys.argtypes = (texts, texts, size, pointer)
    library.digest_jobs.argtypes = (texts, texts, maps, size, ctypes.c_char_p, size, pointer)
    library.digest_events.argtypes = (texts, texts, texts, texts, maps, size, ctypes.c_char_p, size, pointer)
    library.digest_histories.argtypes = (*(pointer,) * 4, size, pointer)
    library.digest_histories.restype = size
    for function in (library.digest_keys, library.digest_jobs, library.digest_events):
        function.restype = None
    return library
