"""The cluster on this machine ends as a whole, also where its command is ended by SIGTERM."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from conformance import interruption
from reports.standalone import _alive_workers

GONE_S = 120.0


class EmptyPage(BaseHTTPRequestHandler):
    """A master that has started to listen, and does not know its workers yet."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def test_an_empty_page_of_a_starting_master_counts_no_workers() -> None:
    with HTTPServer(("127.0.0.1", 0), EmptyPage) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(server.handle_request)
        assert _alive_workers(server.server_port) == 0


@pytest.mark.slow
def test_a_terminated_cluster_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reports.standalone", "--workers", "1", "--memory", "512m"]
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as cluster,
    ):
        assert cluster.stdout is not None
        address = cluster.stdout.readline()
        started = psutil.Process(cluster.pid).children(recursive=True)
        machines = [each for each in started if is_there(each) and each.name() == "java"]
        cluster.terminate()
        ended_with = cluster.wait(GONE_S)
    assert address.startswith("spark://127.0.0.1:"), (tmp_path / "said").read_text()
    assert len(machines) == 2, f"a master and a worker, and not {started}"
    assert ended_with == interruption.EXIT_CODE
    assert still_there(started) == []
    assert (tmp_path / "said").read_text() == ""


def still_there(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that have not ended; zombies have."""
    end = time.monotonic() + GONE_S
    while (left := [each for each in processes if is_there(each)]) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def is_there(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
