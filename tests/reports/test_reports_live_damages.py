"""`check` on a live store under load: each damage of the table is found under its name, and nothing else is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.checkers.table import StoreCheck
from conformance.options import DurationMs
from conformance.servers import RedisInstance, open_server
from reports.check.store_check import ALL_CHECKS
from reports.check.summary import CheckSummary, repair_of
from reports.check.suspicions import Suspicion
from reports.options import CheckConfig
from reports.snapshot.plan import RedisSource
from reports.snapshot.replies import NodeSocket
from reports.verbs.checks import check_store
from tests.reports.live.damaged_store import damage, node_load
from tests.reports.live.damages import DAMAGES, LiveDamage

pytestmark = [
    pytest.mark.long(10),
    pytest.mark.xdist_group("live-damages"),  # one process fills and checks the stores for all
    pytest.mark.slow,
]

PREFIX = "b"
USER = "checker"
READS = (
    "scan type hgetall hget get lrange smembers zrange xrange xrevrange xlen llen zcard pttl exists time info dbsize "
    "lpos zscore srandmember sismember hscan xinfo|stream client|list multi exec echo"
)
"""All commands that `check` needs; `docs/how-to/check-a-live-store.md` has the same."""

SERVER_CAUSES = {
    "no-hash-tag",
    "evicting-policy",
    "memory-nearly-full",
    "several-releases",
    "worker-name-unreadable",
}
"""Causes that are not about a single queue; `tests/checkers` and the tests below show them."""


def dumped(client: Any) -> dict[bytes, bytes]:
    """Every key, byte for byte, but those that end by themselves."""
    return {key: client.dump(key) for key in client.scan_iter(count=1000) if client.pttl(key) == -1}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisInstance]:
    """A Redis of its own: `check` reads the connections and the memory of the whole server."""
    with open_server(None, announce=lambda _: None) as opened, opened.connect() as client:
        words = ["on", ">secret", f"~{PREFIX}:*", "-@all", *(f"+{command}" for command in READS.split())]
        untyped: Any = client
        untyped.execute_command("ACL", "SETUSER", USER, *words)
        yield opened


def checked(server: RedisInstance, out: Path, *, settle_ms: float = 1000) -> tuple[int, CheckSummary]:
    """Check the store as a user who may only read; returns the exit code and the report."""
    url = f"redis://{USER}:secret@{server.nodes[0]}/0#{PREFIX}"
    code = check_store(CheckConfig(settle_ms=DurationMs(settle_ms), out=str(out)), url)
    return code, report_in(out)


def report_in(out: Path) -> CheckSummary:
    return msgspec.json.decode((out / "check.json").read_bytes(), type=CheckSummary)


@pytest.fixture(scope="module")
def summaries(server: RedisInstance, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CheckSummary]:
    """The store before and after it was damaged, both times under load; and damaged and at rest."""
    out = tmp_path_factory.mktemp("check")
    with node_load(server, PREFIX, ["sound", *(each.name for each in DAMAGES)], rate=20):
        code, before = checked(server, out / "before")
        assert code == 0, before.causes
        damage(server, PREFIX, DAMAGES)
        code, damaged = checked(server, out / "damaged")
        assert code == 1
    with server.connect() as client:
        kept = dumped(client)
        with NodeSocket(RedisSource(redis=server.url, prefix=PREFIX).address, server.nodes[0]) as node:
            commands = node.commands_of_others()
            _, at_rest = checked(server, out / "rest", settle_ms=0)
            assert node.commands_of_others() == commands, "a command of `check` counts as one of other clients"
        assert dumped(client) == kept, "reading has changed the store"
        client.save()
        settings = client.config_get("d*")
    file = f"{settings['dir']}/{settings['dbfilename']}#{PREFIX}"
    assert check_store(CheckConfig(out=str(out / "rdb")), file) == 1
    return {"before": before, "damaged": damaged, "rest": at_rest, "rdb": report_in(out / "rdb")}


def by_queue(summary: CheckSummary) -> dict[str, set[str]]:
    """The causes that are reported about each queue."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for cause in summary.causes:
        assert cause.count <= len(cause.examples), "the examples are not all"
        for example in cause.examples:
            found[example.key.removeprefix(f"{PREFIX}:").partition(":")[0]].add(cause.cause)
    return dict(found)


def test_a_sound_store_under_load_has_no_findings(summaries: Mapping[str, CheckSummary]) -> None:
    assert summaries["before"].causes == []


@pytest.mark.parametrize("moment", ["damaged", "rest", "rdb"])
@pytest.mark.parametrize("case", DAMAGES, ids=lambda case: case.name)
def test_a_damage_is_found_under_its_name(case: LiveDamage, moment: str, summaries: Mapping[str, CheckSummary]) -> None:
    assert by_queue(summaries[moment]).get(case.name, set()) == set(case.findings)


def test_nothing_else_is_found(summaries: Mapping[str, CheckSummary]) -> None:
    known = {each.name for each in DAMAGES}
    found = {queue: causes for queue, causes in by_queue(summaries["damaged"]).items() if queue not in known}
    assert found == {"version": {"several-releases"}}


def test_each_finding_has_an_age_and_a_repair(summaries: Mapping[str, CheckSummary]) -> None:
    damaged = summaries["damaged"]
    assert damaged.checked_ms > summaries["before"].checked_ms
    for cause in damaged.causes:
        assert cause.age_ms is not None, cause.cause
        assert cause.age_ms >= 1000, cause.cause
        assert all(cause.repair), cause.cause
        assert all(
            "{" not in call.replace("{priority", "").replace("{bull", "").replace('{"', "") for call in cause.repair
        )


def test_every_check_has_a_cause_and_every_cause_a_damage() -> None:
    assert all(check.damages for check in ALL_CHECKS)
    shown = {name for case in DAMAGES for name in case.findings}
    assert {name for check in ALL_CHECKS for name in check.damages} == shown | SERVER_CAUSES
    assert len({case.name for case in DAMAGES}) == len(DAMAGES) >= 60


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.name)
def test_repairs_name_the_keys(check: StoreCheck) -> None:
    for name, cause in check.damages.items():
        for key in ("q:a:b", "b:q:a"):
            found = Suspicion(cause=name, check=check.name, place="", severity="", key=key, message="", other="b:q:c")
            assert all(repair_of(cause, found, "b"))
