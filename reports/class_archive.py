"""The classes that Spark loads, archived once on a machine, so that its JVM starts in half of the time.

A JVM can map classes from an archive that another one has left behind (JEP 350, dynamic archives of class data).
An archive suits one installation of Java and one of Spark: it is named after both, and without one that suits, Spark
starts without it. `python -m reports.prepare_spark` makes it.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark

from conformance.problems import EnvironmentProblem
from conformance.upstream.package import cache_folder
from reports.spark_problems import find_java

SPARK_HOME = Path(pyspark.__file__).parent
DEADLINE_S = 300.0

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""A JVM that cannot map an archive does without, and would say so in the middle of the command's output."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that ends before its second compiler pays off. JVMs with other options can map the archive as well."""


def archive_path() -> Path:
    """The path of the archive for this Java and this Spark, existing or not. Raises EnvironmentProblem without Java."""
    java = Path(find_java()).resolve()
    built = java.stat()
    identity = f"{java} {built.st_size} {built.st_mtime_ns} {SPARK_HOME}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return cache_folder() / f"spark-{pyspark.__version__}-{key}.jsa"


def options_to_use_it() -> list[str]:
    """Options of the JVM, none of them where there is no archive. Raises EnvironmentProblem without Java."""
    archive = archive_path()
    return [_option("SharedArchiveFile", archive), *_SILENT] if archive.exists() else []


def make_archive(exercise: Callable[[list[str]], str]) -> Path:
    """Have Spark do what it is used for, and archive the classes that it loaded; returns the archive.

    `exercise` gets the options of the JVM that it starts and ends, and returns its class path. The archive appears
    whole or not at all. Raises EnvironmentProblem where the JVM leaves none, or one that cannot be used.
    """
    archive = archive_path()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".spark-", dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        classes = exercise([_option("ArchiveClassesAtExit", written), *_SILENT, *SHORT_LIVED])
        _insist_on_use(written, classes)
        written.replace(archive)
    return archive


def _option(name: str, path: Path) -> str:
    """An option with a path, as Spark splits a line of options: at spaces outside of quotation marks."""
    return f'"-XX:{name}={path}"'


def _insist_on_use(archive: Path, classes: str) -> None:
    """Start a JVM that must map the archive."""
    command = [find_java(), "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", classes, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise EnvironmentProblem(f"the archive of Spark's classes cannot be used: {' '.join(said)}")
