"""The driver of bullmq-rs: what its source declares, and what it does where it is built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from conformance.driver.authoring import check_driver
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.clients import client_folders
from conformance.servers import RedisInstance

FOLDER = client_folders()["bullmq-rs"]


def test_every_operation_is_declared_or_its_page_says_why_not() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (queue|job|flow|worker) \| (.*) \|$", page, re.MULTILINE)
    missing = {f"{role}.{name}" for role, names in rows for name in re.findall(r"`([a-z]\w+)`", names)}
    assert declared_in_source() | missing == set(REGISTRY)
    assert declared_in_source() & missing == set()


def declared_in_source() -> set[str]:
    """The operations that are named in the lists of the driver's source."""
    texts = [path.read_text("utf-8") for path in sorted((FOLDER / "src").glob("*.rs"))]
    lists = [found for text in texts for found in re.findall(r"OPS: &\[&str\] =\s*&\[(.*?)\];", text, re.DOTALL)]
    named = {name for found in lists for name in re.findall(r'"([\w.]+)"', found)}
    return named | {"open", "close", "reset", "resolve"}


def test_the_version_is_the_same_everywhere() -> None:
    pinned = tomllib.loads((FOLDER / "Cargo.toml").read_text("utf-8"))["dependencies"]["bullmq-rs"]
    version = pinned.removeprefix("=")
    locked = tomllib.loads((FOLDER / "Cargo.lock").read_text("utf-8"))["package"]
    assert [each["version"] for each in locked if each["name"] == "bullmq-rs"] == [version]
    assert f'version: "{version}"' in (FOLDER / "src" / "main.rs").read_text("utf-8")
    assert f"version {version}" in (FOLDER / "README.md").read_text("utf-8")


def test_every_crate_is_pinned_by_its_hash() -> None:
    locked = tomllib.loads((FOLDER / "Cargo.lock").read_text("utf-8"))["package"]
    assert [each["name"] for each in locked if "source" in each and "checksum" not in each] == []


@pytest.fixture(scope="module")
def program() -> Path:
    """The driver, where a run has built it: that takes minutes, and no test waits for it."""
    step = msgspec.convert(tomllib.loads((FOLDER / "client.toml").read_text("utf-8"))["build"], BuildStep)
    built = ClientBuild("bullmq-rs", FOLDER, step).program
    if not built.exists():
        pytest.skip("bullmq-rs is not built yet on this machine: `bullmq-conformance run --client bullmq-rs`")
    return built


def test_passes_the_kits_own_check_of_drivers(program: Path, server: RedisInstance) -> None:
    address = RedisAddress(mode="standalone", nodes=list(server.nodes))
    with server.connect() as client:
        steps = check_driver(
            lambda: ChildProcess.start([str(program)], seed=1),
            address=address,
            redis=client,
            prefix="check-bullmq-rs",
            seed=7,
        )
    assert [(step.name, step.detail) for step in steps if step.tried and not step.ok] == []
