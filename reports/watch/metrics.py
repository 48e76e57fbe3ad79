"""The state of a watch as metrics of Prometheus, in a file or over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from conformance.pages.text import escaped_surrogates
from conformance.problems import EnvironmentProblem, UsageProblem
from reports.watch.judgement import KINDS
from reports.watch.session import WatchMoment, WatchSession

PLACES = "examples: 9410, 0.0.0.0:9410, /var/lib/node_exporter/bullmq.prom"
LARGEST_PORT = 65_535
TOTALS = {"claims": "Jobs taken", "stalls": "Jobs stalled", "added": "Jobs added"}


class WatchMetrics(Collector):
    """The metrics of the last moment. `path`: a file that has them as well."""

    def __init__(self, path: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self._families: list[Metric] = []
        self._path = path
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; the server calls it for each request."""
        return self._families

    def publish(self, session: WatchSession, moment: WatchMoment) -> None:
        """Replace the metrics. Without an answer of Redis, `bullmq_watch_up` is 0 and the queues are left out.

        Raises EnvironmentProblem for a file that cannot be written.
        """
        self._families = list(_families(session, moment))
        if self._path is None:
            return
        try:
            write_to_textfile(str(self._path), self.registry)
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot write the metrics to {self._path}: {error.strerror}", hint="choose another file"
            ) from error


def _families(session: WatchSession, moment: WatchMoment) -> Iterator[Metric]:
    yield GaugeMetricFamily("bullmq_watch_up", "Whether Redis answered the last look.", value=float(not moment.error))
    jobs = GaugeMetricFamily("bullmq_watch_jobs", "Jobs in each state.", labels=["queue", "state"])
    workers = GaugeMetricFamily("bullmq_watch_workers", "Connected workers.", labels=["queue"])
    findings = GaugeMetricFamily(
        "bullmq_watch_finding",
        "How many workers, jobs or schedules a finding is about; 0: nothing is wrong.",
        labels=["queue", "kind"],
    )
    totals = {
        event: CounterMetricFamily(f"bullmq_watch_{event}", f"{what} since the start of the watch.", labels=["queue"])
        for event, what in TOTALS.items()
    }
    for queue, state in moment.queues.items():
        name = escaped_surrogates(queue)
        for container, size in state.look.sizes.items():
            jobs.add_metric([name, container], size)
        workers.add_metric([name], len(state.look.workers))
        numbers = {finding.kind: finding.number for finding in state.findings}
        for kind in KINDS:
            findings.add_metric([name, kind], numbers.get(kind, 0))
        for event, family in totals.items():
            family.add_metric([name], session.totals[queue, event])
    yield from (jobs, workers, findings, *totals.values())


@contextmanager
def metrics_place(setting: str) -> Iterator[WatchMetrics]:
    """The place of `--prometheus PORT|FILE`; a port is served on 127.0.0.1 for the duration of the block.

    Raises UsageProblem for another text, EnvironmentProblem for a port that is in use.
    """
    host, _, port = setting.rpartition(":")
    if not setting or not port.isascii() or not port.isdigit():
        yield WatchMetrics(Path(setting) if setting else None)
        return
    if not 0 < int(port) <= LARGEST_PORT:
        raise UsageProblem(f"invalid port {setting!r} for --prometheus", hint=PLACES)
    metrics = WatchMetrics()
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", metrics.registry)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot serve metrics on {setting}: {error.strerror or error}", hint=f"choose another port; {PLACES}"
        ) from error
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
