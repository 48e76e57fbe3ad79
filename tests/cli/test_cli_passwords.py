"""The password of a Redis is in no output of any verb: neither printed, nor in a file that it leaves."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.servers import open_server
from reports.spark_problems import find_java
from tests.conftest import Missing

from .cli_program import PROGRAM, clean_environment
from .signals import REPLAY, TESTS, VERBS

pytestmark = pytest.mark.long(12, processes=2)

PASSWORD = "pl4nted-p4ssw0rd"
VARIABLE = "REDIS_OF_THIS_TEST"
SHORT = {
    "run": "run --client reference --jobs 1 --select add.id.custom --redis {redis} --out {out}",
    "run that fails": "run --jobs 1 --select lock.renew* --redis {redis} --out {out} -- false",
    "fuzz": "fuzz --client reference --redis {redis} --out {out} --budget 2s",
    "replay": f"replay {REPLAY} --client reference --redis {{redis}}",
    "explain": "explain order.delayed.score --prove --redis {redis}",
    "driver": "driver check --client reference --redis {redis}",
    "bench": "bench --client reference --measure claim --rounds 2 --jobs 50 --redis {redis} --out {out}",
    "load": "load --jobs 20 --worker reference --redis {redis} --out {out}",
    "snapshot": "snapshot --redis {redis} --out {out}",
    "diff": "diff {redis}#bull {redis}#bull --out {out}",
    "check": "check {redis}#bull --out {out}",
    "watch": "watch {redis}#bull --for 2s",
    "chaos": "chaos --client reference --faults worker.kill --redis {redis} --out {out}",
    "matrix": "matrix --clients reference --tier smoke --redis {redis} --out {out}",
    "versions": "versions diff 5.62.0 5.62.0 --tier smoke --redis {redis} --out {out}",
}
"""A short call of each verb that takes a Redis."""
WITH_SPARK = frozenset({"load", "snapshot", "diff", "check"})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The URL of a Redis that requires the password."""
    # A connection that was open before needs no password: the server can be emptied at the end.
    with open_server(None, announce=print) as server, server.connect() as client:
        client.config_set("requirepass", PASSWORD)
        yield server.text.replace("://", f"://:{PASSWORD}@")
        client.config_set("requirepass", "")


def _outputs(words: str, setting: str, address: str, folder: Path) -> dict[str, str]:
    """All that a call prints and leaves, by where."""
    out = folder / "out"
    command = [str(PROGRAM), *words.format(redis=setting, out=out).split()]
    environment = clean_environment({VARIABLE: address, "PYTHONPATH": str(TESTS.parent)})
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    files = {str(path): path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()}
    return {"stdout": ended.stdout, "stderr": ended.stderr, **files}


def test_every_verb_that_takes_a_redis_is_tried() -> None:
    taking = {verb.words[0] for verb in VERBS if any("{redis}" in word for word in verb.words)}
    assert taking <= {name.partition(" ")[0] for name in SHORT}


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["in the URL", "in the environment"])
@pytest.mark.parametrize("verb", SHORT)
def test_no_output_has_the_password(verb: str, setting: str, address: str, tmp_path: Path, missing: Missing) -> None:
    if verb in WITH_SPARK:
        try:
            find_java()
        except EnvironmentProblem as problem:
            missing("java", problem.what)
    given = address if setting == "in the URL" else f"env:{VARIABLE}"
    outputs = _outputs(SHORT[verb], given, address, tmp_path)
    assert any(outputs.values())
    assert [where for where, text in outputs.items() if PASSWORD in text] == []


@pytest.mark.slow
def test_a_planted_password_is_found(address: str, tmp_path: Path) -> None:
    outputs = _outputs(f"explain {PASSWORD} --redis {{redis}}", address, address, tmp_path)
    assert any(PASSWORD in text for text in outputs.values())
