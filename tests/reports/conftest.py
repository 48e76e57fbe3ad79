from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server
from reports.session import SparkSettings, spark_session
from reports.spark_problems import require_java
from tests.conftest import Missing


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as opened:
        yield opened


@pytest.fixture
def prefix(server: RedisInstance) -> Iterator[str]:
    name = server.fresh_prefix()
    yield name
    server.remove_prefix(name)


SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Options of a JVM that ends before its second compiler has paid for itself: half of the processor time.

One compiler alone has 48 MB for what it has compiled. Spark fills them: it would throw away, and compile again.
"""

FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Properties of Spark for tables so small that compiling a query takes longer than interpreting it."""


@pytest.fixture(scope="session", autouse=True)
def _short_lived_machines() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SPARK_SUBMIT_OPTS", SHORT_LIVED)
        patch.setitem(os.environ, "SPARK_DAEMON_JAVA_OPTS", SHORT_LIVED)
        # Executors need them if the test of S3 starts after their JVM; its server accepts any.
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setitem(os.environ, name, "of-nobody")
        yield


@pytest.fixture(scope="session")
def _java(missing: Missing) -> None:
    """Skip the test without a Java that Spark can use, unless Java is required."""
    try:
        require_java()
    except EnvironmentProblem as problem:
        missing("java", str(problem))


@pytest.fixture(scope="session")
def spark(_short_lived_machines: None, _java: None) -> Iterator[SparkSession]:
    """One JVM for all tests that need one: they are marked with the xdist group `spark`."""
    with spark_session(SparkSettings(master="local[2]", memory="1g", properties=FEW_ROWS)) as session:
        yield session
