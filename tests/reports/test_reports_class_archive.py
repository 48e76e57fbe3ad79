"""The archive of Spark's classes: used where there is one that suits, and never left behind unless it can be used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from conformance.problems import EnvironmentProblem
from conformance.upstream.package import CACHE_VARIABLE
from reports.class_archive import archive_path, make_archive, options_to_use_it


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without an archive; with a space, at which a line of options is split."""
    folder = tmp_path / "a cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


class EndedProcess:
    """A JVM that leaves whatever `exercise` wrote."""

    def __init__(self, stdin: Path) -> None:
        self.stdin = stdin.open("wb")

    def wait(self, _timeout_s: float) -> int:
        return 0


class EndedGateway:
    """What py4j has of it."""

    def __init__(self, folder: Path) -> None:
        self.proc = EndedProcess(folder / "stdin")
        system = SimpleNamespace(getProperty=lambda _: str(folder))
        self.jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))

    def shutdown(self) -> None: ...


@pytest.mark.usefixtures("cache")
def test_without_an_archive_spark_starts_as_ever() -> None:
    assert options_to_use_it() == []


def test_an_archive_is_mapped_also_from_a_path_with_spaces(cache: Path) -> None:
    cache.mkdir()
    archive_path().touch()
    assert options_to_use_it()[0] == f'"-XX:SharedArchiveFile={archive_path()}"'


@pytest.mark.usefixtures("cache")
def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = archive_path()
    other = tmp_path / "other" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.touch()
    monkeypatch.setenv("JAVA_HOME", str(other.parent.parent))
    assert archive_path() != here


@pytest.mark.parametrize("leaves", [False, True], ids=["nothing", "no archive"])
def test_an_archive_that_no_jvm_can_map_is_not_kept(
    leaves: bool, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", EndedGateway(tmp_path))

    def exercise(options: list[str]) -> None:
        if leaves:
            Path(options[0].strip('"').partition("=")[2]).write_bytes(b"no archive")

    with pytest.raises(EnvironmentProblem, match=r"cannot be used: .*(archive|file)"):
        make_archive(exercise)
    assert not list(cache.iterdir())


def test_an_exercise_that_starts_no_spark_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(EnvironmentProblem, match="Spark was not started"):
        make_archive(lambda _: None)
    assert not list(cache.iterdir())


@pytest.mark.xdist_group("spark")
def test_a_session_maps_the_archive_of_this_machine(spark: SparkSession) -> None:
    """`make test` has prepared one; where somebody has not, the session must do without."""
    machine = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()  # type: ignore[union-attr]
    given = [option for option in machine.getInputArguments() if "SharedArchiveFile" in option]
    assert given == [f"-XX:SharedArchiveFile={archive_path()}"] * archive_path().exists()
