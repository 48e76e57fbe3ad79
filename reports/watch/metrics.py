"""The state of a watch in the text format of Prometheus, in a file or over HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from conformance.pages.text import escaped_surrogates
from conformance.problems import EnvironmentProblem, UsageProblem
from reports.watch.judgement import KINDS
from reports.watch.session import WatchMoment, WatchSession

PLACES = "examples: 9410, 0.0.0.0:9410, /var/lib/node_exporter/bullmq.prom"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGEST_PORT = 65_535


@dataclass(frozen=True)
class _Family:
    name: str
    kind: str
    help: str
    samples: list[tuple[dict[str, str], float]]

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{inner}}} {value:.15g}" if inner else f"{self.name} {value:.15g}"


def metrics_text(session: WatchSession, moment: WatchMoment) -> str:
    """All metrics of a moment; without an answer of Redis, `bullmq_watch_up` is 0 and the queues are left out."""
    return "".join(f"{line}\n" for family in _families(session, moment) for line in family.lines())


def _families(session: WatchSession, moment: WatchMoment) -> Iterator[_Family]:
    states = moment.queues
    yield _Family("bullmq_watch_up", "gauge", "Whether Redis answered the last look.", [({}, float(not moment.error))])
    yield _Family(
        "bullmq_watch_jobs",
        "gauge",
        "Jobs in each state.",
        [
            ({"queue": queue, "state": name}, size)
            for queue, state in states.items()
            for name, size in state.look.sizes.items()
        ],
    )
    yield _Family(
        "bullmq_watch_workers",
        "gauge",
        "Connected workers.",
        [({"queue": queue}, len(state.look.workers)) for queue, state in states.items()],
    )
    numbers = {(finding.queue, finding.kind): finding.number for state in states.values() for finding in state.findings}
    yield _Family(
        "bullmq_watch_finding",
        "gauge",
        "How many workers, jobs or schedules a finding is about; 0: nothing is wrong.",
        [({"queue": queue, "kind": kind}, numbers.get((queue, kind), 0)) for queue in states for kind in KINDS],
    )
    for event, what in {"claims": "Jobs taken", "stalls": "Jobs stalled", "added": "Jobs added"}.items():
        yield _Family(
            f"bullmq_watch_{event}_total",
            "counter",
            f"{what} since the start of the watch.",
            [({"queue": queue}, session.totals[queue, event]) for queue in states],
        )


def _escaped(text: str) -> str:
    escaped = escaped_surrogates(text)
    return escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


class MetricsPlace:
    """The place of the metrics: a file, or an address."""

    def __init__(self, path: Path | None = None) -> None:
        self.text = ""
        self._path = path

    def publish(self, text: str) -> None:
        """Replace the metrics. Raises EnvironmentProblem for a file that cannot be written."""
        self.text = text
        if self._path is None:
            return
        # Renamed, so that a collector never reads half of it.
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            unfinished.write_text(text, "utf-8")
            unfinished.replace(self._path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise EnvironmentProblem(
                f"cannot write the metrics to {self._path}: {error.strerror}", hint="choose another file"
            ) from error


@contextmanager
def metrics_place(setting: str) -> Iterator[MetricsPlace]:
    """The place of `--prometheus PORT|FILE`; a port is served on 127.0.0.1 for the duration of the block.

    Raises UsageProblem for another text, EnvironmentProblem for a port that is in use.
    """
    host, _, port = setting.rpartition(":")
    if not setting or not port.isascii() or not port.isdigit():
        yield MetricsPlace(Path(setting) if setting else None)
        return
    if not 0 < int(port) <= LARGEST_PORT:
        raise UsageProblem(f"invalid port {setting!r} for --prometheus", hint=PLACES)
    place = MetricsPlace()
    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), _handler_of(place))
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot serve metrics on {setting}: {error.strerror or error}", hint=f"choose another port; {PLACES}"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield place
    finally:
        server.shutdown()
        server.server_close()


def _handler_of(place: MetricsPlace) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Gives the metrics to every path."""

        def do_GET(self) -> None:
            """Send them."""
            body = place.text.encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:  # the base class prints a line for each request
            """Print nothing."""

    return Handler
