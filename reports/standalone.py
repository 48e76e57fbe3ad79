"""A standalone Spark cluster on this machine, from the installed pyspark: a master and workers, on loopback.

python -m reports.standalone --workers 2      # prints the address for --master; ends with Ctrl-C or SIGTERM
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pyspark

from conformance import interruption
from conformance.problems import EnvironmentProblem
from conformance.servers.local import free_port
from reports.spark_problems import require_java

HOST = "127.0.0.1"
DEADLINE_S = 300.0
CLOSE_S = 10.0

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone_cluster(
    workers: int = 2, *, memory: str = "1g", environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a cluster for the duration of the block; gives the master's URL. Raises EnvironmentProblem.

    `environment`: the variables of the workers in place of this process's own.
    """
    require_java()
    # A port may be taken before Spark listens on it: then the master ends, and the wait for workers says so.
    port, page = free_port(cluster=False), free_port(cluster=False)
    master = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bullmq-conformance-spark-")))
        log = stack.enter_context((folder / "log").open("w+"))
        address = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        processes = [stack.enter_context(_running([_MASTER, *address], folder, log, os.environ))]
        of_workers = os.environ if environment is None else environment
        for number in range(workers):
            words = ["--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", memory]
            words += ["--work-dir", str(folder / f"work-{number}"), master]
            processes.append(stack.enter_context(_running([_WORKER, *words], folder, log, of_workers)))
        _wait_for_workers(page, workers, processes, log)
        yield master


@contextmanager
def _running(
    words: list[str], folder: Path, log: IO[str], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    home = str(Path(pyspark.__file__).parent)
    environment = {**variables, "SPARK_HOME": home, "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1"}
    process = subprocess.Popen(
        [str(Path(home) / "bin" / "spark-class"), *words],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end, then insist: a worker has executors of its own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_S)
            return


def _wait_for_workers(page: int, workers: int, processes: list[subprocess.Popen[bytes]], log: IO[str]) -> None:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and all(process.poll() is None for process in processes):
        if _alive_workers(page) >= workers:
            return
        time.sleep(0.2)
    log.seek(0)
    said = log.read().strip().splitlines()[-3:]
    raise EnvironmentProblem(
        f"the Spark cluster did not come up within {DEADLINE_S:g} s: {' | '.join(said)}", hint="is there memory for it?"
    )


def _alive_workers(page: int) -> int:
    """How many workers the master's page counts; 0 while there is no page yet."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as response:
            found: dict[str, Any] = json.load(response)
    # A master that is still starting may send an empty page.
    except (OSError, ValueError):
        return 0
    return sum(worker.get("state") == "ALIVE" for worker in found.get("workers", ()))


def main() -> None:
    """Run a cluster until the user has enough."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1g", help="of each worker (%(default)s)")
    options = parser.parse_args()
    try:
        with interruption.handled(), standalone_cluster(options.workers, memory=options.memory) as master:
            print(master, flush=True)
            signal.pause()
    except EnvironmentProblem as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit(interruption.EXIT_CODE)


if __name__ == "__main__":
    main()
