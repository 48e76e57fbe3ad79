"""A folder on any file system of pyarrow (local, S3, HDFS), with the operations that a snapshot needs.

Executors get it as a value and open the file system themselves: with variables and roles of their own, but at the
address of S3 (`AWS_ENDPOINT_URL`) that the command was given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from conformance.environment.out_folder import prove_writable
from conformance.problems import EnvironmentProblem, UsageProblem

ENDPOINT = "AWS_ENDPOINT_URL"
"""The standard variable for the address of a server that speaks S3, where that is not Amazon's."""

_S3 = "s3"
_OTHERS = ("hdfs", "viewfs", "gs", "gcs", "abfs", "abfss")
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
"""Kinds of file systems, as pyarrow names them, whose folders are nothing but the beginnings of names."""

_LOCAL = pyarrow.fs.LocalFileSystem()


def is_elsewhere(named: str) -> bool:
    """Whether a name means a folder that is on no file system of this machine."""
    scheme, is_url, _ = named.partition("://")
    return bool(is_url) and scheme in {_S3, *_OTHERS}


@dataclass(frozen=True)
class Folder:
    """A folder, whether it is there or not. `address`: a path, or as in `s3://bucket/run`. `endpoint`: of S3.

    `version`: of the content if that no longer changes, else empty. All methods raise OSError if the file system
    refuses.
    """

    address: str
    endpoint: str = field(default="", repr=False)
    version: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> Folder:
        return replace(self, address=f"{self.address}/{name}")

    @property
    def is_here(self) -> bool:
        """Whether it is on a file system of this machine."""
        return not is_elsewhere(self.address)

    @property
    def path(self) -> Path:
        """Its path on this machine."""
        assert self.is_here, self
        return Path(self.address)

    @property
    def name(self) -> str:
        """The last part of its address."""
        return self.address.rpartition("/")[2]

    def absolute(self) -> Folder:
        """The same with an absolute path, for processes with another working folder."""
        return replace(self, address=str(self.path.absolute())) if self.is_here else self

    @property
    def _store(self) -> tuple[Any, str]:
        """Its file system, and its path there."""
        if self.is_here:
            return _LOCAL, self.address
        scheme, _, rest = self.address.partition("://")
        root, _, below = rest.partition("/")
        if scheme == _S3:
            return _s3(root, self.endpoint), rest
        system, beginning = _other(f"{scheme}://{root}/")
        return system, f"{beginning.rstrip('/')}/{below}"

    def exists(self) -> bool:
        """Whether it is there; also raises OSError where not even its bucket is."""
        system, path = self._store
        if system.get_file_info(path).type == pyarrow.fs.FileType.Directory:
            return True
        bucket = path.partition("/")[0]
        is_in_bucket = system.type_name in _OBJECT_STORES
        if is_in_bucket and system.get_file_info(bucket).type == pyarrow.fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket {bucket}")
        return False

    def make(self) -> None:
        """See to it that it is there. An object store makes folders by what is put into them."""
        system, path = self._store
        if system.type_name not in _OBJECT_STORES:
            system.create_dir(path, recursive=True)

    def names(self) -> list[str]:
        """Names of the files and folders right in it, in no order; none where it is not there."""
        if self.is_here:
            # Arrow would ask for the size of every file as well, and this is called for each bucket of each table.
            return os.listdir(self.address) if os.path.isdir(self.address) else []  # noqa: PTH208, PTH112 - faster
        system, path = self._store
        return [found.base_name for found in system.get_file_info(_right_in(path)) if found.path != path]

    def opened(self, name: str) -> Any:
        """A file in it, to be read at any place."""
        system, path = self._store
        return system.open_input_file(f"{path}/{name}")

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        try:
            with self.opened(name) as file:
                found: bytes = file.read()
        except FileNotFoundError:
            return None
        return found

    def write(self, name: str, content: bytes) -> None:
        """Write a file: it is there as a whole or not at all."""
        system, path = self._store
        # An object is there only when it has been closed; a file is written under another name.
        written = name if system.type_name in _OBJECT_STORES else f"{name}{UNFINISHED}"
        with system.open_output_stream(f"{path}/{written}", compression=None) as file:
            file.write(content)
        if written != name:
            system.move(f"{path}/{written}", f"{path}/{name}")

    def sizes(self) -> dict[str, int]:
        """The files right in it with their sizes (bytes); empty where it is not there."""
        system, path = self._store
        found = system.get_file_info(_right_in(path))
        return {each.base_name: each.size for each in found if each.type == pyarrow.fs.FileType.File}

    def write_table(self, name: str, rows: pa.Table, **options: Any) -> int:
        """Write rows as a Parquet file; `options` as pyarrow has them. Returns its size (bytes)."""
        self.make()
        system, path = self._store
        with system.open_output_stream(f"{path}/{name}", compression=None) as file:
            pyarrow.parquet.write_table(rows, file, **options)
            return int(file.tell())

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        system, path = self._store
        if system.get_file_info(f"{path}/{name}").type != pyarrow.fs.FileType.NotFound:
            system.delete_file(f"{path}/{name}")

    def clear(self) -> None:
        """Remove it with everything in it, if it is there."""
        system, path = self._store
        if system.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
            system.delete_dir(path)

    def take(self, files: Path) -> None:
        """Copy all files below a folder of this machine, whose names stay."""
        for file in sorted(path for path in files.rglob("*") if path.is_file()):
            below = file.relative_to(files)
            target = self if below.parent == Path() else self / below.parent.as_posix()
            target.make()
            target.write(below.name, file.read_bytes())


UNFINISHED = ".unfinished"
"""The suffix of a file while it is written."""


def _right_in(path: str) -> Any:
    return pyarrow.fs.FileSelector(path, allow_not_found=True)


@cache
def _s3(bucket: str, endpoint: str) -> Any:
    """S3 as the standard variables describe it. Amazon's region of a bucket is asked for where no variable names it."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    address = {}
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        address = {"scheme": scheme or "https", "endpoint_override": host.rstrip("/")}
        region = region or "us-east-1"
    # Files are small: opened when they are written, each is one request and not three.
    return pyarrow.fs.S3FileSystem(
        region=region or pyarrow.fs.resolve_s3_region(bucket), allow_delayed_open=True, **address
    )


@cache
def _other(root: str) -> tuple[Any, str]:
    """A file system by its address, and the path of its root."""
    system, path = pyarrow.fs.FileSystem.from_uri(root)
    return system, path


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,35}):")


def folder_at(named: str | Path) -> Folder:
    """The folder of this name. Raises UsageProblem for an address that no file system has."""
    text = str(named)
    scheme, is_url, rest = text.partition("://")
    # pyarrow takes such a text for an address as well, and fails.
    if not is_url and (found := _SCHEME.match(text)):
        raise UsageProblem(
            f"{text!r} is neither a folder nor an address: `//` is missing after {found[0]!r}",
            hint=f"write {found[1]}://host:port#prefix, or the absolute path of a folder with a colon in its name",
        )
    if not is_url or scheme == "file":
        return Folder(str(Path(rest if is_url else text)))
    if not is_elsewhere(text):
        raise UsageProblem(
            f"{text}: unsupported file system {scheme}:// for a snapshot",
            hint="give a folder, s3://bucket/folder, hdfs://host:port/folder, gs:// or abfs://",
        )
    if not rest.partition("/")[2].strip("/"):
        raise UsageProblem(f"{text} does not name a folder", hint=f"as in {scheme}://{rest.strip('/') or 'bucket'}/run")
    return Folder(text.rstrip("/"), endpoint=os.environ.get(ENDPOINT, "") if scheme == _S3 else "")


def prove_room(folder: Folder) -> None:
    """Make it, and write a file there that is gone at once. Raises EnvironmentProblem where that fails."""
    if folder.is_here:
        prove_writable(folder.path)
        return
    with explained_folder(folder):
        folder.make()
        folder.write(_PROBE, b"room")
        folder.remove(_PROBE)


_PROBE = "room"


@contextmanager
def explained_folder(*folders: Folder) -> Iterator[None]:
    """Raise the EnvironmentProblem behind what the file system of one of these folders says."""
    try:
        yield
    except OSError as error:
        are_here = all(folder.is_here for folder in folders)
        hint = "choose another folder, or is the disk full?" if are_here else HINT_ELSEWHERE
        said = " ".join(str(error).split())[:400]
        raise EnvironmentProblem(f"cannot read or write {', '.join(map(str, folders))}: {said}", hint=hint) from error


HINT_ELSEWHERE = f"are the address ({ENDPOINT}), the bucket and the credentials right?"
"""The hint if a remote file system refuses."""
