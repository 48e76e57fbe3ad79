"""The archive of Spark's classes: used where there is one that suits, and never left behind unless it can be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.problems import EnvironmentProblem
from conformance.upstream.package import CACHE_VARIABLE
from reports.class_archive import archive_path, make_archive, options_to_use_it

pytestmark = pytest.mark.usefixtures("_java")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without an archive; with a space, at which a line of options is split."""
    folder = tmp_path / "a cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.mark.usefixtures("cache")
def test_without_an_archive_spark_gets_no_options() -> None:
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
def test_an_archive_that_no_jvm_can_map_is_not_kept(leaves: bool, cache: Path, tmp_path: Path) -> None:
    def exercise(options: list[str]) -> str:
        if leaves:
            Path(options[0].strip('"').partition("=")[2]).write_bytes(b"no archive")
        return str(tmp_path)

    with pytest.raises(EnvironmentProblem, match=r"cannot be used: .*(archive|file)"):
        make_archive(exercise)
    assert not list(cache.iterdir())


@pytest.mark.xdist_group("spark")
def test_a_session_maps_the_archive_of_this_machine(spark: SparkSession) -> None:
    """`make test` prepares one; without it the session has no such option."""
    machine = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()  # type: ignore[union-attr]
    given = [option for option in machine.getInputArguments() if "SharedArchiveFile" in option]
    assert given == [f"-XX:SharedArchiveFile={archive_path()}"] * archive_path().exists()
