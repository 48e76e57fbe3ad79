"""The folder for the reports of a verb: they are written on this machine, and copied to a remote folder at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance.environment.out_folder import prove_writable
from conformance.problems import UsageProblem
from reports.snapshot.folders import Folder, explained_folder, folder_at, prove_room

_OWN = "bullmq-conformance-"


@dataclass(frozen=True, kw_only=True)
class ReportFolder:
    """`out`: the folder that the user has named. `local`: where reports are written."""

    out: Folder
    local: Path

    def below(self, name: str) -> ReportFolder:
        """A folder in it, made. Raises as `make_folder`."""
        make_folder(self.local / name)
        return ReportFolder(out=self.out / name, local=self.local / name)

    def addresses_of(self, written: Iterable[Path]) -> Iterator[str]:
        """The final addresses of written files; the index of all runs stays on this machine."""
        for path in written:
            if self.out.is_here:
                yield str(path)
            elif path.is_relative_to(self.local):
                yield str(self.out / path.relative_to(self.local).as_posix())


@contextmanager
def report_folder(out: Folder) -> Iterator[ReportFolder]:
    """The folder for the duration of the block; a remote folder gets the files when the block ends without an error.

    Raises UsageProblem if a local folder cannot be made, EnvironmentProblem for everything else.
    """
    if out.is_here:
        make_folder(out.path)
        yield ReportFolder(out=out, local=out.path)
        return
    prove_room(out)
    with tempfile.TemporaryDirectory(prefix=_OWN) as room:
        # One level below, because the index of all runs is written next to it.
        local = Path(room) / "reports"
        make_folder(local)
        yield ReportFolder(out=out, local=local)
        with explained_folder(out):
            out.take(local)


@contextmanager
def passing_folder() -> Iterator[ReportFolder]:
    """A temporary folder of this machine."""
    with tempfile.TemporaryDirectory(prefix=_OWN, ignore_cleanup_errors=True) as room:
        yield ReportFolder(out=folder_at(room), local=Path(room))


def make_folder(out: Path) -> None:
    """Make the folder for results. Raises UsageProblem where that is impossible, EnvironmentProblem on a full disk."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"--out {out}: {error.strerror}", hint="choose another folder") from error
    prove_writable(out)
