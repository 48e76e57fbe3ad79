"""Each mistake of a user, or lack of a machine: one clear line, what to do next, and the right exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .cli_program import ROOT, Program, run_command

USAGE, ENVIRONMENT, NOTHING = 2, 3, 5

Driver = Callable[[str], list[str]]


def known_toml(folder: Path, requirement: str) -> Path:
    path = folder / "known.toml"
    path.write_text(f'[[known]]\nrequirement = "{requirement}"\nreason = "because"\n')
    return path


# The command line.


@pytest.mark.slow
def test_the_installed_program_says_it_in_one_line_and_a_hint(program: Program) -> None:
    done = program("run", "--client", "no-such-client")
    assert done.complains(USAGE, "unknown client 'no-such-client'", "python-official")
    assert len(done.err.splitlines()) == 2


@pytest.mark.slow
def test_python_m_conformance_is_the_same_program(program: Program, tmp_path: Path) -> None:
    words = ("run", "--client", "node", "--", "some-driver")
    as_module = run_command([sys.executable, "-m", "conformance", *words], cwd=tmp_path)
    assert as_module.complains(USAGE, "--client and a driver's command exclude each other", "give only one of them")
    assert as_module == program(*words)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("nonsense", "invalid Redis setting 'nonsense'"),
        ("http://localhost", "scheme 'http'"),
        ("redis://localhost:port", "not host:port"),
        ("redis://localhost/first", "invalid database"),
        ("cluster:1", "cannot have '1' masters"),
        ("binary:/nonexistent/redis-server", "no file /nonexistent/redis-server"),
    ],
)
def test_a_redis_setting_that_cannot_be_read(call: Program, setting: str, text: str) -> None:
    assert call("run", "--redis", setting).complains(USAGE, text)


def test_a_missing_known_file(call: Program) -> None:
    assert call("run", "--known", "nowhere.toml").complains(USAGE, "nowhere.toml: No such file")


def test_an_unknown_requirement_in_known(call: Program, tmp_path: Path) -> None:
    path = known_toml(tmp_path, "no.such.requirement")
    assert call("run", "--known", path).complains(USAGE, "unknown requirement 'no.such.requirement'", "list")


def test_an_unknown_format(call: Program) -> None:
    assert call("run", "--format", "pdf").complains(USAGE, "unknown report format 'pdf'", "html")


@pytest.mark.parametrize(
    ("words", "code", "what", "hint"),
    [
        (
            "run --select add.lifo --select flow_failures/*",
            NOTHING,
            "no scenario matches flow_failures/*",
            "flow-failures",
        ),
        ("run --profile worker --profile produccer", USAGE, "unknown profile 'produccer'", "did you mean producer"),
        ("run --no-rule own-prefix --no-rule own-prefx", USAGE, "rule 'own-prefx'", "did you mean own-prefix"),
        ("chaos --faults worker.kill,worker_kil*", USAGE, "unknown fault 'worker_kil*'", "did you mean worker.kill"),
        ("fuzz --without queue.pause --without queue.pau", USAGE, "--without 'queue.pau'", "did you mean queue.pause"),
        ("versions diff 5.62.0 6.7.0 --select add.lifo --select add.life", NOTHING, "matches add.life", "add.lifo?"),
        ("matrix --clients node --out nowhere --cell node --cell nod", USAGE, "has no cell 'nod'", "node"),
        ("list add.* add.lifoo", NOTHING, "no requirement matches add.lifoo", "did you mean add.lifo"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error_although_another_one_matches(
    call: Program, words: str, code: int, what: str, hint: str
) -> None:
    assert call(*words.split()).complains(code, what, hint)


def test_a_known_scenario_that_does_not_exist(call: Program, tmp_path: Path) -> None:
    path = known_toml(tmp_path, "add.lifo")
    path.write_text(path.read_text() + 'scenario = "add/a_lifo_job_enters_wait_at_the_rigth"\n')
    assert call("run", "--known", path).complains(USAGE, "no scenario matches 'add/a_lifo", "wait_at_the_right")


def test_an_unknown_prerequisite(call: Program) -> None:
    assert call("run", "--require", "coffee").complains(USAGE, "'coffee'", "hint: use docker")


def test_a_node_that_is_not_there(call: Program) -> None:
    assert call("run", "--node", "/nonexistent/node").complains(USAGE, "there is no such program")


@pytest.mark.parametrize("words", [("run", "--jobs", "0"), ("run", "--tier", "all"), ("run", "--nope"), ("nope",)])
def test_refusals_by_click_are_wrong_usage_too(call: Program, words: tuple[str, ...]) -> None:
    done = call(*words)
    assert done.code == USAGE
    assert "Error: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_nothing_selected(program: Program, tmp_path: Path) -> None:
    done = program("run", "--tier", "smoke", "--select", "race", "--jobs", "1", "--out", tmp_path / "out")
    assert done.complains(NOTHING, "no scenario of race can run", "its scenarios are in tier core")
    assert not (tmp_path / "out" / "run.jsonl").exists(), "nothing ran, so there is no run"


# The disk.


def test_a_folder_that_cannot_be_written(call: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert call("run", "--out", tmp_path / "file" / "out").complains(ENVIRONMENT, "cannot write the run file", "choose")


def test_a_folder_that_holds_a_run_is_never_overwritten(call: Program, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("evidence\n")
    assert call("run", "--out", tmp_path).complains(USAGE, "already holds a run", "another")
    assert (tmp_path / "run.jsonl").read_text() == "evidence\n"


# Redis.


def test_a_redis_that_cannot_be_reached(call: Program, closed_port: int) -> None:
    done = call("run", "--redis", f"redis://:s3cret@127.0.0.1:{closed_port}")
    assert done.complains(ENVIRONMENT, f"127.0.0.1:{closed_port} cannot be reached", "start it")
    assert "s3cret" not in done.out + done.err


def test_a_redis_that_is_too_old(call: Program, old_redis: int) -> None:
    done = call("run", "--redis", f"redis://127.0.0.1:{old_redis}")
    assert done.complains(ENVIRONMENT, "is version 6.0.16", "needs Redis 6.2")


# Node and the network.


@pytest.mark.slow
def test_no_node_at_all(program: Program, tmp_path: Path) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "nodejs.py").write_text("# shadows the package nodejs-bin\n")
    done = program("run", env={"PATH": str(hiding), "PYTHONPATH": str(hiding)})
    assert done.complains(ENVIRONMENT, "no Node.js 18 or newer was found", "nodejs-bin")


@pytest.mark.slow
def test_no_network_for_the_first_installation(program: Program, tmp_path: Path, closed_port: int) -> None:
    env = {
        "BULLMQ_CONFORMANCE_CACHE": str(tmp_path / "cache"),
        "npm_config_registry": f"http://127.0.0.1:{closed_port}/",
        "npm_config_cache": str(tmp_path / "npm"),
        "npm_config_fetch_retries": "0",
    }
    done = program("run", env=env)
    assert done.complains(ENVIRONMENT, "npm ci failed", "the npm registry is needed once")
    assert not list((tmp_path / "cache").glob("npm-*")), "nothing half installed is left"


def test_a_cache_that_cannot_be_written(call: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BULLMQ_CONFORMANCE_CACHE", str(tmp_path / "file" / "cache"))
    assert call("run").complains(ENVIRONMENT, "cache folder", "BULLMQ_CONFORMANCE_CACHE")


# Drivers. Each complaint names the driver, because a run has two of them.

LIAR = """
ready()
for line in sys.stdin:
    call = json.loads(line)
    if call["op"] in ("open", "close", "reset", "queue.add"):
        result(call, "ok", value={"id": "1"})
    else:
        result(call, "unsupported", reason="no such operation")
"""

TEXTS = {
    "crashes": ("print('out of coffee', file=sys.stderr, flush=True); os._exit(7)", "exit code 7", "out of coffee"),
    "prints text": ("print('Hello, I am a driver!', flush=True)", "printed text to stdout", "Hello, I am a driver!"),
    "prints garbage": ("os.write(1, b'{\\xff\\xfe}\\n')", "is not JSON", "one JSON object"),
    "sends another schema": ("say(type='ready', protocol=1)", "does not fit the schema", "driver-v1.json"),
    "speaks another version": (
        "say(type='ready', protocol=9, client={'name':'x','language':'x','version':'1'}, ops=[], capabilities=[])",
        "version 9 of the driver protocol",
        "this kit uses version 1",
    ),
    "replies without a request": (
        "ready(); say(type='result', id=999, status='ok')",
        "result with id 999",
        "copy `id`",
    ),
    "lies about operations": (
        "ready()\nfor line in sys.stdin: result(json.loads(line), 'ok', value={'id': '1'})",
        "to the unknown operation",
        "answer `unsupported`",
    ),
    "lies about a write": (
        LIAR,
        "Redis has no hash",
        "answer once the job is in Redis",
    ),
    "hangs": ("ready()\nwhile True: signal.pause()", "within 5000 ms and was killed", "answer every call"),
}


@pytest.mark.parametrize(("body", "what", "hint"), TEXTS.values(), ids=TEXTS)
def test_a_driver_that_cannot_be_used(call: Program, driver: Driver, body: str, what: str, hint: str) -> None:
    done = call("run", "--", *driver(body))
    assert done.complains(ENVIRONMENT, what, hint)
    assert done.err.startswith(("error: driver `some`: ", "error: driver `" + sys.executable)), "the driver is named"


def test_a_driver_that_cannot_be_started(call: Program) -> None:
    assert call("run", "--", "/nonexistent/driver", "-v").complains(ENVIRONMENT, "cannot start '/nonexistent/driver'")


# Asking.


def test_an_unknown_requirement_is_answered_with_the_closest_ones(call: Program) -> None:
    assert call("explain", "add.lif").complains(USAGE, "unknown requirement 'add.lif'", "did you mean add.lifo")
    assert call("explain", "zzzzzzzzz").complains(USAGE, "unknown requirement", "list")


def test_listing_nothing(call: Program) -> None:
    assert call("list", "no.such.*").complains(NOTHING, "no requirement matches no.such.*")


def test_a_report_of_nothing(call: Program, tmp_path: Path) -> None:
    assert call("report", tmp_path / "nowhere").complains(USAGE, "cannot read the run file")


def test_explain(call: Program) -> None:
    done = call("explain", "add.lifo")
    assert done.code == 0
    assert done.out.startswith("add.lifo  (MUST, area add)\n")
    for text in ("stated in: ", "add/a_lifo_job_enters_wait_at_the_right", "bullmq-conformance run --select add.lifo"):
        assert text in done.out


def test_list(call: Program) -> None:
    everything, some = call("list"), call("list", "add.lifo", "lock")
    assert everything.code == some.code == 0
    assert len(everything.out.splitlines()) > len(some.out.splitlines()) > 2
    assert "add.lifo" in some.out
    assert "lock.token" in some.out
    assert "add.plain" not in some.out


def test_list_clients(call: Program) -> None:
    done = call("list", "--clients")
    assert done.code == 0
    assert {"reference", "node", "python-official"} <= set(done.out.split())


def test_help_and_version(call: Program) -> None:
    for words in (("--help",), ("run", "--help"), ("--version",)):
        done = call(*words)
        assert done.code == 0
        assert "bullmq-conformance" in done.out
    assert (ROOT / "conformance" / "__main__.py").is_file()
