from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conformance.cli.verbs import cli
from conformance.problems import EnvironmentProblem, UsageProblem
from reports.options import SparkConfig
from reports.report_folder import make_folder
from reports.snapshot.folders import folder_at
from reports.snapshot.format import MANIFEST, SnapshotManifest, claim_folder, read_manifest, write_manifest
from reports.snapshot.plan import RedisSource
from reports.spark_problems import ExecutorProblem, explain_spark, require_java


def fake_java(folder: Path, said: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="is Java 8; Spark needs 17 or newer"):
        require_java()


def test_a_java_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "hello")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="does not print its version"):
        require_java()


def test_no_java_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="no Java was found") as caught:
        require_java()
    assert "openjdk-17" in caught.value.hint


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="does not exist"):
        require_java()


def test_a_problem_of_an_executor_arrives_as_it_was_raised() -> None:
    problem = EnvironmentProblem("Redis at x cannot be reached (refused | again)", hint="start it")
    trace = f"Job aborted\n  File ...\nreports.failures.ExecutorProblem: {ExecutorProblem(problem)}\n\n\tat org.apache"
    found = explain_spark(Exception(trace))
    assert str(found) == "Redis at x cannot be reached (refused / again) — start it"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\nCaused by: java.io.IOException: No space left on device\n\tat", "the disk is full"),
        ("Job aborted: java.lang.OutOfMemoryError: Java heap space", "Spark ran out of memory"),
        ("An error occurred while calling o1.x: Answer from Java side is empty", "the JVM of Spark died"),
        ("ExecutorLostFailure (executor 1 exited)", "an executor was lost"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x", "a folder of the snapshot is missing"),
        ("OSError: When uploading a part: AWS Error ACCESS_DENIED during UploadPart", "S3 refused an executor"),
        ("Traceback\n  File x\nValueError: strange\n", "Spark failed: ValueError: strange"),
    ],
)
def test_an_error_of_spark_becomes_one_line(text: str, said: str) -> None:
    assert said in str(explain_spark(Exception(text)))


def manifest() -> SnapshotManifest:
    return SnapshotManifest(
        kit="1",
        bullmq="5.62.0",
        scripts_sha256="x",
        source="redis://h:1/0",
        prefix="p",
        queue="",
        taken_ms=1,
        redis_settings={},
        redis_version="7.0.15",
        rows={"jobs": 3},
        moving=[],
        queues={},
        buckets=2,
    )


def test_a_manifest_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    claim_folder(folder_at(tmp_path))
    with pytest.raises(UsageProblem, match="was not finished"):
        read_manifest(folder_at(tmp_path))
    write_manifest(folder_at(tmp_path), manifest())
    assert read_manifest(folder_at(tmp_path)).jobs == 3
    claim_folder(folder_at(tmp_path))
    assert not (tmp_path / MANIFEST).exists()


def test_a_manifest_of_another_schema_is_refused(tmp_path: Path) -> None:
    write_manifest(folder_at(tmp_path), msgspec.structs.replace(manifest(), schema_version=99))
    with pytest.raises(UsageProblem, match="schema version 99"):
        read_manifest(folder_at(tmp_path))
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(UsageProblem, match="is not a manifest"):
        read_manifest(folder_at(tmp_path))


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageProblem, match=r"letter\.txt"):
        claim_folder(folder_at(tmp_path))
    with pytest.raises(UsageProblem, match="is not a folder"):
        read_manifest(folder_at(tmp_path / "nowhere"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="--out"):
        make_folder(tmp_path / "file" / "below")


def test_a_source_has_to_be_a_url() -> None:
    with pytest.raises(UsageProblem, match="invalid address of a Redis"):
        RedisSource(redis="bundled", prefix="p").address  # noqa: B018 - it raises


def test_a_property_has_a_name_and_a_value() -> None:
    assert SparkConfig(conf=["a=b=c"]).properties == {"a": "b=c"}
    with pytest.raises(UsageProblem, match="no `=`"):
        SparkConfig(conf=["a"]).properties  # noqa: B018


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("diff", "NOWHERE", "NOWHERE"), "is not a folder"),
        (("diff", "NOWHERE", "NOWHERE", "--job", "1"), "--job needs --queue"),
        (("diff", "redis://127.0.0.1:1", "NOWHERE", "--no-rule", "x"), "unknown canonical rule"),
        (("snapshot", "--redis", "bundled", "--out", "NOWHERE"), "invalid address"),
        (("load", "--jobs", "5", "--worker", "nobody", "--out", "NOWHERE"), "unknown client"),
        (("history", "NOWHERE"), "is not a history"),
        (("load", "--resume", "--out", "NOWHERE"), "--resume needs --redis and --prefix"),
        (("diff", "redis:/127.0.0.1:6379", "NOWHERE"), "`//` is missing after 'redis:'"),
        (("check", "redis:127.0.0.1"), "`//` is missing after 'redis:'"),
        (("load", "--workload", "NOWHERE", "--out", "NOWHERE"), "cannot be read"),
    ],
)
def test_mistakes_are_reported_before_spark_starts(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    given = [str(tmp_path / "nowhere") if word == "NOWHERE" else word for word in words]
    with pytest.raises(UsageProblem) as caught:
        cli.main(given, standalone_mode=False)
    assert said in str(caught.value)


def test_other_verbs_do_not_import_spark() -> None:
    heavy = "('pyspark', 'pyarrow', 'pandas', 'matplotlib', 'hdrh')"
    load_all = "from conformance.cli.verbs import loaded_verbs; assert len(list(loaded_verbs())) > 9"
    code = f"import sys; {load_all}; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
