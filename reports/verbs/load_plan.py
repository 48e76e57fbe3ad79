"""The meaning of the options of `load`: the workload, the clients that take part, and where the jobs go."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from conformance.environment.clients import Launch
from conformance.environment.prepare import Environment
from conformance.problems import UsageProblem
from reports.load.run import SNAPSHOT, LoadPlan, WorkerGroup
from reports.load.target import KEEP_ALL_EVENTS, LoadTarget
from reports.load.workload import Workload, checked_workload, read_workload
from reports.options import LoadConfig
from reports.report_folder import ReportFolder

REFERENCE = "reference"

_WORKER_GROUP = re.compile(r"(?P<client>.+?)(?::(?P<processes>\d+))?")


@dataclass(frozen=True, kw_only=True)
class PlannedLoad:
    """A load before it has a folder: its target, its workers, and the command line that describes it."""

    target: LoadTarget
    workers: list[WorkerGroup]
    command: str

    @property
    def label(self) -> str:
        """Producer and workers, as in `reference → node, bullmq-rs`."""
        workers = ", ".join(group.client.name for group in self.workers) or "no workers"
        return f"{self.target.producer.name if self.target.producer else REFERENCE} → {workers}"

    def into(self, reports: ReportFolder) -> LoadPlan:
        """The plan with a folder for its results."""
        return LoadPlan(
            target=self.target,
            workers=self.workers,
            out=reports.local,
            kept=reports.out / SNAPSHOT,
            command=self.command,
        )

    def at_rate(self, rate: float, run: str, *, seconds: float) -> PlannedLoad:
        """The same load at another rate (jobs/s) for a number of seconds, on queues of its own named after `run`."""
        jobs = max(1, round(rate * seconds))
        target = replace(
            self.target,
            prefix=f"{self.target.prefix}-{run}",
            workload=msgspec.structs.replace(self.target.workload, rate=rate, jobs=jobs),
            partitions=min(self.target.partitions, jobs),
        )
        return replace(self, target=target)


def workload_of(config: LoadConfig) -> Workload:
    """The workload of the YAML description, overridden by the config. Raises UsageProblem."""
    described = read_workload(config.workload) if config.workload else Workload()
    given = {"jobs": config.jobs, "seed": config.seed, "queues": config.queues, "rate": config.rate}
    changes = {name: value for name, value in given.items() if value is not None}
    return checked_workload(msgspec.structs.replace(described, **changes))


def check_resume(config: LoadConfig) -> None:
    """Raise UsageProblem if `--resume` cannot work with the other config."""
    if config.resume and config.find_rate:
        raise UsageProblem("--resume does not work with --find-rate", hint="start the search again without --resume")
    if config.resume and not (config.prefix and config.redis):
        raise UsageProblem("--resume needs --redis and --prefix", hint="repeat those of the interrupted load")


def planned_load(config: LoadConfig, workload: Workload, environment: Environment) -> PlannedLoad:
    """The load in a prepared environment. Raises UsageProblem for unknown clients and for options without effect."""
    launch = client_launcher(environment, config.packages)
    names = config.workers or ((config.driver_name,) if config.command else ())
    workers = [worker_group(text, config.concurrency, launch) for text in names]
    producer = config.producer or config.driver_name or REFERENCE
    if config.packages and {producer, *(group.client.name for group in workers)} == {REFERENCE}:
        raise UsageProblem(
            "--with does not apply to the reference", hint="name another client: --worker python-official"
        )
    server = environment.server
    prefix = config.prefix or server.fresh_prefix().strip("{}")
    # A cluster keeps all keys of a queue on one node only if its name has a hash tag.
    tagged = workload.tagged or (server.mode == "cluster" and "{" not in prefix)
    return PlannedLoad(
        target=LoadTarget(
            address=server,
            prefix=prefix,
            workload=msgspec.structs.replace(workload, tagged=tagged),
            producer=None if producer == REFERENCE else launch(producer),
            event_limit=config.events or KEEP_ALL_EVENTS,
            partitions=min(config.partitions, workload.jobs),
            resume=config.resume,
        ),
        workers=workers,
        command=config.reproduce,
    )


def client_launcher(environment: Environment, packages: Sequence[str]) -> Callable[[str], Launch]:
    """A function that returns how to start a client, by its name; `packages` are not for the reference."""

    def launch(client: str) -> Launch:
        if client == environment.client.name and environment.client.command:
            return environment.client
        return environment.launch(client, () if client == REFERENCE else packages)

    return launch


def worker_group(text: str, concurrency: int, launch: Callable[[str], Launch]) -> WorkerGroup:
    """Read `node:2` as two processes of Node. Raises UsageProblem."""
    parts = _WORKER_GROUP.fullmatch(text)
    if parts is None or parts["processes"] == "0":
        raise UsageProblem(f"invalid --worker {text!r}", hint="examples: --worker node, --worker reference:2")
    client = launch(parts["client"])
    return WorkerGroup(client=client, processes=int(parts["processes"] or 1), concurrency=concurrency)
