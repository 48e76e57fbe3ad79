"""The verb `load`: from options to a plan, and from its result to reports."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance.environment.clients import Toolchain, find_toolchain
from conformance.problems import UsageProblem
from conformance.servers import open_server
from reports.load.fleet import Crew
from reports.load.run import LoadPlan, Told, run_load
from reports.load.target import Launched, Target
from reports.options import say
from reports.render.load_page import write_load_reports
from reports.session import SparkSettings, spark_session
from reports.workload.description import Workload, checked, read_workload

_CREW = re.compile(r"(?P<client>.+?)(?::(?P<processes>\d+))?")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the user wrote. `changes`: fields of the workload given as options."""

    workload: Path | None
    changes: Mapping[str, Any]
    producer: str
    workers: tuple[str, ...]
    concurrency: int
    partitions: int
    redis: str
    prefix: str
    events: int
    resume: bool
    out: Path
    command: str


def carry_out(options: LoadOptions, spark: Mapping[str, Any]) -> None:
    """Run the load and write its reports. Raises Problems."""
    workload = workload_of(options)
    if options.resume and not (options.prefix and options.redis):
        raise UsageProblem("--resume needs --redis and --prefix", hint="give those of the load that broke off")
    toolbox = find_toolchain("", say)
    crews = [crew_of(text, options.concurrency, toolbox) for text in options.workers]
    producer = None if options.producer == "reference" else launched(options.producer, toolbox)
    make_folder(options.out)
    with open_server(options.redis or None, announce=say) as server:
        prefix = options.prefix or server.fresh_prefix().strip("{}")
        if server.mode == "cluster" and "{" not in prefix:
            workload = msgspec.structs.replace(workload, tagged=True)
        say(f"queues {', '.join(workload.queue_names[:3])} under prefix {prefix} on {server.text}")
        target = Target(
            address=server,
            prefix=prefix,
            workload=workload,
            producer=producer,
            event_limit=options.events,
            partitions=options.partitions,
            resume=options.resume,
        )
        plan = LoadPlan(target=target, crews=crews, out=options.out, command=options.command)
        with spark_session(settings_of(spark)) as session, _progress(workload) as told:
            result = run_load(session, plan, announce=say, told=told)
    say(f"finished {result.finished.jobs} jobs in {result.finished.seconds:.1f} s")
    for path in write_load_reports(options.out, result):
        say(str(path))


def workload_of(options: LoadOptions) -> Workload:
    """The description, with the options in place of its own numbers. Raises UsageProblem."""
    described = read_workload(options.workload) if options.workload else Workload()
    return checked(msgspec.structs.replace(described, **options.changes))


def crew_of(text: str, concurrency: int, toolbox: Toolchain) -> Crew:
    """`node:2` as two processes of Node. Raises UsageProblem."""
    found = _CREW.fullmatch(text)
    if found is None or found["processes"] == "0":
        raise UsageProblem(f"--worker {text!r} is not understood", hint="as in --worker node or --worker reference:2")
    client = launched(found["client"], toolbox)
    return Crew(client=client, processes=int(found["processes"] or 1), concurrency=concurrency)


def launched(name: str, toolbox: Toolchain) -> Launched:
    """A client by its name. Raises UsageProblem for an unknown one."""
    launch = toolbox.launch(name)
    return Launched(name=name, command=tuple(launch.command), environment=dict(launch.environment))


def settings_of(spark: Mapping[str, Any]) -> SparkSettings:
    """Options about Spark as a value."""
    return SparkSettings(master=spark["master"], memory=spark["memory"], settings=dict(spark["conf"]))


def make_folder(out: Path) -> None:
    """Make the folder for results. Raises UsageProblem where that is impossible."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"--out {out}: {error.strerror}", hint="choose another folder") from error
    if not os.access(out, os.W_OK):
        raise UsageProblem(f"--out {out} cannot be written to", hint="choose another folder")


@contextmanager
def _progress(workload: Workload) -> Iterator[Told]:
    """A bar of finished jobs; only where somebody looks."""
    columns = (TextColumn("finished"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("finished", total=workload.jobs)

        def told(counts: Mapping[str, int]) -> None:
            progress.update(bar, completed=counts.get("completed", 0) + counts.get("failed", 0))

        yield told
