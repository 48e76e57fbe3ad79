"""A file of the oracle that is not as npm left it is found, even with the same size and time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.upstream.installed_files import package_of, read_files, record_files, verify_files
from conformance.upstream.package import HARNESS, BullMQPackage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two packages, as npm would install them, recorded."""
    for name, text in (("bullmq/dist/job.js", "run(1)"), ("@ioredis/commands/index.js", "x"), (".bin/tool", "t")):
        path = tmp_path / "node_modules" / name
        path.parent.mkdir(parents=True)
        path.write_text(text, "utf-8")
    record_files(tmp_path)
    return tmp_path


def test_files_as_npm_left_them_are_accepted(root: Path) -> None:
    verify_files(root)
    verify_files(root, read_files(root).by_package())


def test_a_change_of_the_same_size_and_time_is_seen(root: Path) -> None:
    changed = root / "node_modules" / "bullmq" / "dist" / "job.js"
    before = changed.stat()
    changed.write_text("run(2)", "utf-8")
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(EnvironmentProblem, match=r"bullmq/dist/job\.js"):
        verify_files(root)


@pytest.mark.parametrize("change", ["added", "removed"])
def test_a_file_too_many_or_too_few_is_seen(root: Path, change: str) -> None:
    if change == "added":
        (root / "node_modules" / "bullmq" / "hook.js").write_text("", "utf-8")
    else:
        (root / "node_modules" / "@ioredis" / "commands" / "index.js").unlink()
    with pytest.raises(EnvironmentProblem, match=r"hook\.js|index\.js"):
        verify_files(root)


def test_a_record_that_was_changed_along_does_not_excuse_for_the_pinned_version(root: Path) -> None:
    pinned = read_files(root).by_package()
    (root / "node_modules" / "bullmq" / "dist" / "job.js").write_text("run(2)", "utf-8")
    record_files(root)
    with pytest.raises(EnvironmentProblem, match="changed since npm installed it: bullmq"):
        verify_files(root, pinned)


def test_without_a_record_another_version_is_refused(root: Path) -> None:
    (root / "files.json").unlink()
    with pytest.raises(EnvironmentProblem, match="no record"):
        verify_files(root)


def test_files_that_npm_writes_for_itself_do_not_count(root: Path) -> None:
    (root / "node_modules" / ".bin" / "tool").write_text("other", "utf-8")
    verify_files(root)


def test_scopes_are_part_of_a_package_name() -> None:
    assert [package_of("@ioredis/commands/a.js"), package_of("bullmq/dist/b.js")] == ["@ioredis/commands", "bullmq"]


def test_the_pinned_package_is_as_the_kit_says(package: BullMQPackage) -> None:
    package.verify()
    assert (HARNESS / "packages.manifest.json").exists()
