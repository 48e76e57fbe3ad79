"""`bullmq-conformance ledger` and `explain`, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from conformance.cli import main as cli_main
from conformance.cli import requirements as ledger_verb
from conformance.ledger.loader import Ledger, load_ledger
from conformance.ledger.page import requirements_page

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs the program and answers exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bullmq-conformance", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli_main.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, list[str]]], None]:
    """Makes the ledger one row with one claim, and the mutants what the test says."""
    row = load_ledger().row("lock.token")

    def use(mutants: dict[str, list[str]]) -> None:
        monkeypatch.setattr(ledger_verb, "load_ledger", lambda: Ledger([row], {"lock": "Locks"}))
        monkeypatch.setattr(ledger_verb, "load_claims", lambda: dict.fromkeys(row.claims, "DIFFERS"))
        monkeypatch.setattr(ledger_verb, "killed_rows", lambda: mutants)

    return use


def test_the_coverage_lists_areas_and_gaps(call: Call) -> None:
    code, out, _ = call("ledger", "coverage")
    assert code == 0
    first, *lines = out.splitlines()
    assert first.split()[:4] == ["area", "rows", "tested", "disputed"]
    assert {line.split()[0] for line in lines[: len(load_ledger().areas)]} == set(load_ledger().areas)
    assert lines[-1].startswith(f"{len(load_ledger())} rows, ")


def test_strict_fails_when_something_is_missing(call: Call, small: Callable[[dict[str, list[str]]], None]) -> None:
    small({})
    code, out, _ = call("ledger", "coverage", "--strict")
    assert code == 1
    assert "no mutant: lock.token" in out
    assert "missing: 1 x no mutant" in out
    assert call("ledger", "coverage")[0] == 0


def test_strict_passes_when_nothing_is_missing(call: Call, small: Callable[[dict[str, list[str]]], None]) -> None:
    small({"lock.token": ["some.mutant"]})
    code, out, _ = call("ledger", "coverage", "--strict")
    assert code == 0
    assert out.splitlines()[-1] == "1 rows, 1 with scenario, 1 with mutant; missing: nothing"


def test_the_page_is_printed(call: Call) -> None:
    assert call("ledger", "page") == (0, requirements_page(load_ledger()), "")


@pytest.mark.parametrize("name", ["lock.token", "FR-2.3", "fr-2.3"])
def test_a_row_is_explained_by_its_id_and_by_a_claim(call: Call, name: str) -> None:
    code, out, _ = call("explain", name)
    assert code == 0
    assert out.startswith("lock.token  (MUST, area lock)\n")
    for part in (
        "status: disputed\n",
        "the paper: ",
        "the oracle: ",
        "FR-2.3 (DIFFERS)",
        "scenarios: lock/",
        "explain lock.token --prove",
    ):
        assert part in out


def test_an_excused_row_gives_its_reason(call: Call) -> None:
    _, out, _ = call("explain", "library.worker-id")
    assert "status: client-only: logs of one process" in out
    assert "run them" not in out


def test_an_unknown_claim_is_the_users_mistake(call: Call) -> None:
    code, _, err = call("explain", "FR-2.99")
    assert code == 2
    assert "unknown requirement 'FR-2.99'" in err
    assert "did you mean FR-2." in err


def test_what_is_not_disputed_has_no_proof(call: Call) -> None:
    code, _, err = call("explain", "add.lifo", "--prove")
    assert code == 2
    assert "no proof of add.lifo, which is tested" in err


def test_a_dispute_is_proven(call: Call) -> None:
    code, out, _ = call("explain", "FR-1.2", "--prove")
    assert code == 0
    assert "paper says: A higher number is a higher priority" in out
    assert "Node 5.62.0 does: they ran in the order 0, 1, 3, 10" in out
