"""Run files: written line by line, read whole or cut, and everything else refused with its line number."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conformance.gate.records import Record, encode
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.report.run_file import Run, RunWriter, find_run, read_run
from tests.report import sample_runs


@pytest.fixture
def full(run_path: Callable[[str], Path]) -> Run:
    return read_run(run_path("full"))


def write(run: Run, path: Path) -> Path:
    records: list[Record] = [run.header, *run.scenarios]
    with RunWriter(path) as writer:
        for record in [*records, run.footer] if run.footer else records:
            writer.write(record)
    return path


def test_a_written_run_is_read_back(full: Run, tmp_path: Path) -> None:
    assert read_run(write(full, tmp_path / "deep" / "run.jsonl")) == full


def test_each_record_is_on_disk_at_once(full: Run, tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run.jsonl")
    writer.write(full.header)
    writer.write(full.scenarios[0])
    assert read_run(writer.path) == Run(header=full.header, scenarios=full.scenarios[:1], footer=None)
    writer.close()
    writer.close()


def test_a_run_cut_at_any_byte_is_an_incomplete_run(full: Run, tmp_path: Path) -> None:
    path = write(full, tmp_path / "run.jsonl")
    content = path.read_bytes()
    first_line = content.index(b"\n")
    for end in range(first_line, len(content) - 1, 97):
        path.write_bytes(content[:end])
        assert read_run(path).footer is None
    path.write_bytes(content[:-1])
    assert read_run(path).footer == full.footer, "the last record is whole, only its newline is missing"


def test_threads_do_not_tear_each_others_lines(full: Run, tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run.jsonl") as writer:
        writer.write(full.header)

        def write_all() -> None:
            for record in full.scenarios:
                writer.write(record)

        threads = [threading.Thread(target=write_all) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_run(writer.path).scenarios) == 4 * len(full.scenarios)


def test_a_lone_surrogate_does_not_lose_the_record(full: Run, tmp_path: Path) -> None:
    hostile = msgspec.structs.replace(full.scenarios[0], reason="half a pair: \ud83d", known={"\udc00": "key"})
    with RunWriter(tmp_path / "run.jsonl") as writer:
        writer.write(full.header)
        writer.write(hostile)
    read = read_run(writer.path).scenarios[0]
    assert (read.reason, read.known) == ("half a pair: \\ud83d", {"\\udc00": "key"})


def test_an_unwritable_path_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot write the run file"):
        RunWriter(tmp_path / "file" / "run.jsonl")


def test_a_full_disk_is_a_problem_and_not_a_traceback(
    full: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunWriter(tmp_path / "run.jsonl") as writer:
        monkeypatch.setattr(os, "write", refuse)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            writer.write(full.header)


def test_a_short_write_is_continued(full: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: whole(descriptor, bytes(content)[:100]))
    assert read_run(write(full, tmp_path / "run.jsonl")) == full


def test_a_run_is_never_overwritten(full: Run, tmp_path: Path) -> None:
    path = write(full, tmp_path / "run.jsonl")
    before = path.read_bytes()
    with pytest.raises(UsageProblem, match="already holds a run"):
        RunWriter(path)
    assert path.read_bytes() == before


def test_writing_after_closing_is_a_mistake_of_the_caller(full: Run, tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run.jsonl")
    writer.close()
    with pytest.raises(ValueError, match="already closed"):
        writer.write(full.header)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda _: [], "holds no run"),
        (lambda lines: [lines[0][:50]], "holds no run"),
        (lambda _: [b"hello\n"], "line 1: not a record"),
        (lambda _: [b"\xff\xfe\n"], "line 1: not a record"),
        (lambda lines: [lines[0], b'{"type":"scenario"}\n', lines[1]], "line 2: not a record"),
        (lambda lines: [lines[0], b"\n", lines[1]], "line 2: not a record"),
        (lambda lines: lines[1:], "line 1: a record before the header"),
        (lambda lines: [lines[0], lines[0]], "line 2: a second header"),
        (lambda lines: [*lines, lines[1]], "a record after the footer"),
        (lambda lines: [lines[0].replace(b'"format":1', b'"format":2')], "format 2, and this kit reads format 1"),
    ],
)
def test_a_file_that_is_not_a_run_is_refused(
    spoil: Callable[[list[bytes]], list[bytes]], message: str, run_path: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(spoil(run_path("full").read_bytes().splitlines(keepends=True))))
    with pytest.raises(UsageProblem, match=message):
        read_run(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot read the run file"):
        read_run(tmp_path / "nothing.jsonl")


def test_the_run_of_a_folder(full: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no run file"):
        find_run(tmp_path)
    only = write(full, tmp_path / "a.jsonl")
    assert find_run(tmp_path) == only
    write(full, tmp_path / "b.jsonl")
    with pytest.raises(UsageProblem, match=r"a\.jsonl, b\.jsonl"):
        find_run(tmp_path)
    named = write(full, tmp_path / "run.jsonl")
    assert find_run(tmp_path) == named
    assert find_run(only) == only


def test_records_are_whole_lines() -> None:
    odd = sample_runs.scenario("a", "pass", title="line\nbreak", log=["\u2028", "\r\n"])
    assert encode(odd).count(b"\n") == 1
