"""The ledger: it loads, its ids are well-formed, nothing in it is without a scenario, and no locator has two owners."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import scenarios
from conformance.gate.selection import all_scenarios, scenarios_by_requirement
from conformance.ledger import loader
from conformance.ledger.loader import Ledger, Requirement, Status, load_claims, load_ledger
from conformance.ledger.operations import load_operations
from conformance.participants.marks import Scenario
from conformance.protocol.versions import SUPPORTED_ORACLES, in_range
from tests.gate.gate_builders import made

ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")
"""Dotted names of lower-case words: `lock.stale-token-refused`."""

ROW = """
  - id: {id}
    level: MUST
    statement: Something holds.
    source: some.lua
"""


def requirement(
    name: str, *owns: str, claims: tuple[str, ...] = (), status: Status = "tested", reason: str = ""
) -> Requirement:
    return Requirement(
        id=name,
        area="a",
        level="MUST",
        statement="It holds.",
        source="x.lua",
        oracle="",
        claims=claims,
        owns=owns,
        status=status,
        reason=reason,
    )


def a_ledger(*rows: Requirement) -> Ledger:
    return Ledger(list(rows), {"a": "An area"})


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ledger]:
    """Loads a ledger from files of the test's own."""
    read_again = loader._areas_and_rows.__wrapped__

    def load(*, version: str = "", **files: str) -> Ledger:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
        monkeypatch.setattr(loader, "files", lambda _package: tmp_path)
        monkeypatch.setattr(loader, "_areas_and_rows", read_again)
        return load_ledger.__wrapped__(version)

    return load


# The kit's own ledger. Each property is a function of its own, so that a broken ledger can be shown to be caught.


def ill_formed_ids(ids: Iterable[str]) -> list[str]:
    return [name for name in ids if not ID.fullmatch(name)]


def rows_without_scenario(ledger: Mapping[str, Requirement], scenarios: Mapping[str, list[str]]) -> list[str]:
    return [name for name, row in ledger.items() if row.examined and not scenarios.get(name)]


def excuses_without_need(ledger: Mapping[str, Requirement], scenarios: Mapping[str, list[str]]) -> list[str]:
    return [name for name, row in ledger.items() if not row.examined and scenarios.get(name)]


def rows_without_core_scenario(ledger: Mapping[str, Requirement], scenarios: Iterable[Scenario]) -> list[str]:
    """Rows that the default run leaves out although a single Redis can decide them."""
    on_one_redis = [scenario for scenario in scenarios if not scenario.needs]
    decidable = {row for scenario in on_one_redis for row in scenario.requirements}
    in_core = {row for scenario in on_one_redis if scenario.tier != "full" for row in scenario.requirements}
    return [name for name, row in ledger.items() if row.examined and name in decidable - in_core]


def rows_for_a_cluster_only(ledger: Mapping[str, Requirement], scenarios: Iterable[Scenario]) -> list[str]:
    anywhere = {row for scenario in scenarios if not scenario.needs for row in scenario.requirements}
    return [name for name, row in ledger.items() if row.examined and name not in anywhere]


def claims_without_row(claims: Iterable[str], ledger: Ledger) -> list[str]:
    return [claim for claim in claims if claim not in ledger.by_claim()]


def claims_in_two_rows(ledger: Ledger) -> list[str]:
    named = [claim for row in ledger.values() for claim in row.claims]
    return sorted({claim for claim in named if named.count(claim) > 1})


def unknown_claims(claims: Iterable[str], ledger: Ledger) -> list[str]:
    return sorted(set(ledger.by_claim()) - set(claims))


def differences_without_dispute(claims: Mapping[str, str], ledger: Ledger) -> list[str]:
    rows = ledger.by_claim()
    return [
        claim
        for claim, verdict in claims.items()
        if verdict == "DIFFERS" and claim in rows and rows[claim].status != "disputed"
    ]


def unknown_requirements(ledger: Mapping[str, Requirement], scenarios: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: users for name, users in scenarios.items() if name not in ledger}


def patterns_with_two_owners(rows: Iterable[Requirement]) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for row in rows:
        for pattern in row.owns:
            owners.setdefault(pattern, []).append(row.id)
    return {pattern: names for pattern, names in owners.items() if len(names) > 1}


def test_the_ledger_of_the_kit_loads() -> None:
    ledger = load_ledger()
    assert len(ledger) > 100
    assert {row.area for row in ledger.values()} == set(ledger.areas)
    assert all(row.statement and row.source for row in ledger.values())


def test_the_ids_are_dotted_names_and_never_ordinals() -> None:
    assert ill_formed_ids(load_ledger()) == []


@pytest.mark.parametrize("name", ["lock", "Lock.token", "lock..token", "lock.token-", "lock.token_x", "lock token.x"])
def test_an_id_of_another_form_would_be_noticed(name: str) -> None:
    assert ill_formed_ids([name]) == [name]


def test_every_claim_of_the_specification_has_a_row() -> None:
    claims = load_claims()
    assert len(claims) == 512
    assert claims_without_row(claims, load_ledger()) == []
    assert unknown_claims(claims, load_ledger()) == []


def test_a_claim_without_row_and_a_row_with_an_unknown_claim_would_be_noticed() -> None:
    ledger = a_ledger(requirement("a.one", claims=("FR-1", "FR-9")))
    assert claims_without_row(["FR-1", "FR-2"], ledger) == ["FR-2"]
    assert unknown_claims(["FR-1", "FR-2"], ledger) == ["FR-9"]


def test_no_claim_is_in_two_rows() -> None:
    assert claims_in_two_rows(load_ledger()) == []


def test_a_claim_in_two_rows_would_be_noticed() -> None:
    ledger = a_ledger(requirement("a.one", claims=("FR-1",)), requirement("a.two", claims=("FR-1", "FR-2")))
    assert claims_in_two_rows(ledger) == ["FR-1"]


def test_every_claim_that_differs_belongs_to_a_disputed_row() -> None:
    assert differences_without_dispute(load_claims(), load_ledger()) == []


def test_a_difference_in_a_tested_row_would_be_noticed() -> None:
    ledger = a_ledger(requirement("a.one", claims=("FR-1",)), requirement("a.two", claims=("FR-2",), status="disputed"))
    assert differences_without_dispute({"FR-1": "DIFFERS", "FR-2": "DIFFERS"}, ledger) == ["FR-1"]


def test_the_verdicts_are_known_words() -> None:
    assert set(load_claims().values()) == {"HOLDS", "DIFFERS", "LIBRARY", "OBSOLETE", "UNTESTED"}


def test_every_examined_row_has_a_scenario() -> None:
    assert rows_without_scenario(load_ledger(), scenarios_by_requirement()) == []


def test_a_row_without_scenario_would_be_noticed() -> None:
    ledger = a_ledger(
        requirement("a.tested"),
        requirement("a.forgotten"),
        requirement("a.disputed", status="disputed"),
        requirement("a.excused", status="disputed", reason="a fact about upstream"),
        requirement("a.library", status="client-only", reason="no other client sees it"),
    )
    assert rows_without_scenario(ledger, {"a.tested": ["a/one"], "a.forgotten": []}) == ["a.forgotten", "a.disputed"]


def test_the_default_run_checks_every_row_that_one_redis_can_decide() -> None:
    assert rows_without_core_scenario(load_ledger(), _scenarios()) == []


def test_only_rows_about_clusters_need_one() -> None:
    needy = rows_for_a_cluster_only(load_ledger(), _scenarios())
    assert needy == [
        "cluster.tagged-works",
        "cluster.untagged-spreads",
        "cluster.flow-in-one-slot",
        "cluster.workers-seen",
    ]


def test_a_row_left_out_of_the_default_run_would_be_noticed() -> None:
    rows = [requirement(name) for name in ("a.core", "a.full", "a.both", "a.cluster")]
    scenarios = [
        made("a.core", "a.both", tier="core"),
        made("a.full", "a.both", tier="full"),
        replace(made("a.cluster", "a.full"), needs="cluster"),
    ]
    assert rows_without_core_scenario(a_ledger(*rows), scenarios) == ["a.full"]
    assert rows_for_a_cluster_only(a_ledger(*rows), scenarios) == ["a.cluster"]


def _scenarios() -> list[Scenario]:
    return [scenario for _, scenario in all_scenarios()]


def test_no_row_is_excused_that_has_a_scenario() -> None:
    assert excuses_without_need(load_ledger(), scenarios_by_requirement()) == []


def test_a_stale_excuse_would_be_noticed() -> None:
    ledger = a_ledger(requirement("a.one", status="untestable", reason="scenario missing"), requirement("a.two"))
    assert excuses_without_need(ledger, {"a.one": ["a/one"], "a.two": ["a/one"]}) == ["a.one"]


def test_every_requirement_of_a_scenario_is_in_the_ledger() -> None:
    assert unknown_requirements(load_ledger(), scenarios_by_requirement()) == {}


def test_every_row_that_an_assertion_names_is_in_the_ledger() -> None:
    texts = (path.read_text("utf-8") for path in Path(scenarios.__file__).parent.rglob("*.py"))
    named = {re.sub(r"{[^}]*}", "*", row) for text in texts for row in re.findall(r'"row\.([^"]+)"', text)}
    assert named
    assert [row for row in named if not fnmatch.filter(load_ledger(), row)] == []


def test_a_scenario_with_an_unknown_requirement_would_be_noticed() -> None:
    assert unknown_requirements(a_ledger(requirement("a.b")), {"a.c": ["a/one"]}) == {"a.c": ["a/one"]}


def test_no_pattern_is_owned_by_two_rows() -> None:
    assert patterns_with_two_owners(load_ledger().values()) == {}


def test_a_pattern_with_two_owners_would_be_noticed() -> None:
    rows = [requirement("a.one", "job.x"), requirement("a.two", "job.x", "job.y")]
    assert patterns_with_two_owners(rows) == {"job.x": ["a.one", "a.two"]}


# Owners of locators.


def test_the_longest_pattern_owns_a_locator() -> None:
    ledger = a_ledger(
        requirement("a.all", "job.*"), requirement("a.opts", "job.opts.*"), requirement("a.exact", "job.opts.delay")
    )
    owners = {where: ledger.owner_of(where) for where in ("job.name", "job.opts.lifo", "job.opts.delay", "event.added")}
    assert {where: owner.id if owner else None for where, owner in owners.items()} == {
        "job.name": "a.all",
        "job.opts.lifo": "a.opts",
        "job.opts.delay": "a.exact",
        "event.added": None,
    }


def test_stars_do_not_make_a_pattern_longer() -> None:
    ledger = a_ledger(requirement("a.stars", "job.**********"), requirement("a.word", "job.opt*"))
    owner = ledger.owner_of("job.opts")
    assert owner is not None
    assert owner.id == "a.word"


def test_only_the_named_rows_are_asked() -> None:
    ledger = a_ledger(requirement("a.all", "job.*"), requirement("a.opts", "job.opts.*"))
    among = ledger.owner_of("job.opts.lifo", among={"a.all"})
    assert among is not None
    assert among.id == "a.all"
    assert ledger.owner_of("job.opts.lifo", among=()) is None


@pytest.mark.parametrize(
    ("where", "owner"), [("job.timestamp", "job.hash.timestamp"), ("lock.ttl.1", "lock.duration"), ("nothing", None)]
)
def test_owners_in_the_kits_own_ledger(where: str, owner: str | None) -> None:
    found = load_ledger().owner_of(where)
    assert (found.id if found else None) == owner


# Reading.


def test_files_are_read_in_order_with_their_titles(read: Callable[..., Ledger]) -> None:
    ledger = read(
        b="area: b\ntitle: Second\nrows:" + ROW.format(id="b.one"),
        a="area: a\ntitle: First\nrows:" + ROW.format(id="a.one") + ROW.format(id="a.two"),
    )
    assert list(ledger) == ["a.one", "a.two", "b.one"]
    assert ledger.areas == {"a": "First", "b": "Second"}
    assert ledger.row("b.one").area == "b"


@pytest.mark.parametrize(
    "text",
    [
        "area: [unfinished",
        "area: x\ntitle: X",
        "just a text",
        "",
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y").replace("MUST", "OUGHT"),
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y") + "    ownz: [job.x]\n",
        "area: x\ntitle: X\nrows:\n  - id: x.y\n    level: MUST\n    statement: no source\n",
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y") + "    status: disputed\n    paper: only one side\n",
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y") + "    status: untestable\n",
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y") + "    status: client-only\n",
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y") + "    reason: tested, and yet an excuse\n",
        "area: x\ntitle: X\nrows:" + ROW.format(id="x.y") + "    status: forgotten\n",
    ],
    ids=[
        "no yaml",
        "no rows",
        "no mapping",
        "empty",
        "unknown level",
        "unknown field",
        "missing field",
        "disputed by one side",
        "untestable without reason",
        "client-only without reason",
        "tested with an excuse",
        "unknown status",
    ],
)
def test_a_malformed_file_is_named(read: Callable[..., Ledger], text: str) -> None:
    with pytest.raises(ValueError, match=r"ledger file crooked\.yaml: "):
        read(crooked=text)


def test_the_same_id_twice_is_refused(read: Callable[..., Ledger]) -> None:
    with pytest.raises(ValueError, match=r"same id: a\.one"):
        read(
            a="area: a\ntitle: A\nrows:" + ROW.format(id="a.one") + ROW.format(id="a.two"),
            b="area: b\ntitle: B\nrows:" + ROW.format(id="a.one"),
        )


RANGES = (
    "area: a\ntitle: A\nrows:"
    + ROW.format(id="a.always")
    + ROW.format(id="a.once")
    + "    until: 5.70.0\n"
    + ROW.format(id="a.now")
    + "    since: 5.70.0\n"
    + ROW.format(id="a.other")
    + "    later: [{since: 5.9.0, statement: Early.}, {since: 5.70.0, statement: Late., source: new.lua}]\n"
)


@pytest.mark.parametrize(
    ("version", "ids", "statement"),
    [
        ("5.62.0", ["a.always", "a.once", "a.other"], "Early."),
        ("5.69.9", ["a.always", "a.once", "a.other"], "Early."),
        ("5.70.0", ["a.always", "a.now", "a.other"], "Late."),
        ("6.7.0", ["a.always", "a.now", "a.other"], "Late."),
        ("5.8.0", ["a.always", "a.once", "a.other"], "Something holds."),
        ("", ["a.always", "a.once", "a.now", "a.other"], "Something holds."),
    ],
)
def test_a_version_has_its_rows_in_its_words(
    read: Callable[..., Ledger], version: str, ids: list[str], statement: str
) -> None:
    ledger = read(version=version, a=RANGES)
    assert (list(ledger), ledger.row("a.other").statement) == (ids, statement)


def test_a_release_that_is_none_is_named(read: Callable[..., Ledger]) -> None:
    with pytest.raises(ValueError, match=r"ledger file a\.yaml: invalid range of versions '>=newest'"):
        read(a="area: a\ntitle: A\nrows:" + ROW.format(id="a.one") + "    since: newest\n")


@pytest.mark.parametrize("version", SUPPORTED_ORACLES)
def test_every_version_has_a_scenario_for_each_of_its_rows(version: str) -> None:
    ledger = load_ledger(version)
    named = {row for _, made in all_scenarios() if in_range(version, made.bullmq) for row in made.requirements}
    assert {row.id for row in ledger.values() if row.examined} <= named
    assert named <= set(ledger)


OF_NEWER_OPERATIONS = {
    *("cancel.signal", "cancel.all", "getters.meta", "lifecycle.remove.orphans"),
    *("relay.delivers", "relay.patterns", "relay.retained", "relay.ends", "relay.getters"),
}
"""Rows of operations that the pinned version does not have."""


@pytest.mark.parametrize("version", SUPPORTED_ORACLES)
def test_the_row_of_every_operation_holds_in_every_version_that_has_it(version: str) -> None:
    rows = {load_ledger().row(row) for row in load_operations().rows.values()}
    not_yet = {row.id for row in rows if row.since and not in_range(version, f">={row.since}")}
    assert {row.id for row in rows} - not_yet <= set(load_ledger(version))
    assert not_yet <= OF_NEWER_OPERATIONS


def test_an_unknown_id_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        load_ledger().row("no.such")
