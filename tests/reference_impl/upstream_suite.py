"""Run the tests of upstream's Python client on the reference; exits with 1 where they do not end as expected.

    git clone https://github.com/taskforcesh/bullmq && git -C bullmq checkout 5569fd637c
    python -m tests.reference_impl.upstream_suite bullmq

5569fd637c is the commit that released BullMQ 5.62.0. The tests are taken from the checkout and none is kept here. They
run on a private Redis through the shim in `upstream_shim`, which is all that stands between them and the reference.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from conformance.servers import open_server

SHIM: Final = Path(__file__).parent / "upstream_shim"
WITHIN_S: Final = 1800

PINNED_MISTAKES: Final = {
    "worker_test.py::TestWorker::test_process_jobs_fail": "a failedReason in quotes, as JSON; Node has it plain",
    "worker_test.py::TestWorker::test_process_job_fail_with_nan_as_return_value": "the same",
}
"""The tests that must fail, because they pin what Node.js BullMQ 5.62.0 does not do; and what that is."""

_REPORTED = re.compile(r"^tests/(\S+) (PASSED|FAILED|ERROR)", re.MULTILINE)


def outcomes(output: str) -> dict[str, bool]:
    """Which tests have passed, from what `pytest -v` has printed."""
    return {name: ending == "PASSED" for name, ending in _REPORTED.findall(output)}


def surprises(found: dict[str, bool], expected_failures: Iterable[str]) -> list[str]:
    """A line for each test that did not end as expected; no tests at all are a surprise, too."""
    failed = {name for name, passed in found.items() if not passed}
    return [
        *([] if found else ["no test was run"]),
        *(f"{name} fails" for name in sorted(failed - set(expected_failures))),
        *(f"{name} is expected to fail, and does not" for name in sorted(set(expected_failures) - failed)),
    ]


def run_tests(checkout: Path, node: str, folder: Path) -> str:
    """Run a copy of the tests with this Redis (`host:port`) in place of their own; returns what was printed."""
    host, _, port = node.rpartition(":")
    (folder / "tests").mkdir()
    for source in (checkout / "python" / "tests").glob("*.py"):
        text = source.read_text("utf-8").replace("localhost:6379", node)
        text = text.replace('host="localhost", port="6379"', f'host="{host}", port={port}')
        (folder / "tests" / source.name).write_text(text, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(SHIM), str(Path(__file__).parents[2])])
    environment["BULLMQ_TEST_REDIS"] = f"redis://{node}"
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, *sorted(path.relative_to(folder).as_posix() for path in (folder / "tests").glob("*_test.py"))],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.stdout


def main() -> int:
    """Run them, print what they print, and say what is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of taskforcesh/bullmq")
    checkout = parser.parse_args().checkout
    with tempfile.TemporaryDirectory() as folder, open_server(None, announce=print) as server:
        output = run_tests(checkout, server.nodes[0], Path(folder))
    print(output)
    found = outcomes(output)
    unexpected = surprises(found, PINNED_MISTAKES)
    print(
        f"{sum(found.values())} of {len(found)} pass; expected to fail: {len(PINNED_MISTAKES)}", *unexpected, sep="\n"
    )
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
