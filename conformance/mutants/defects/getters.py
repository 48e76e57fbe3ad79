"""Reading a queue wrongly, and editing its jobs wrongly, their progress, logs and data included."""

from __future__ import annotations

import re
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import client_list
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import parse
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.manage import ReadScripts


@mutant("metrics.prometheus-unfinished-only", kills=("metrics.prometheus",))
def prometheus_unfinished_only(damage: Damage) -> None:
    """The text for Prometheus has no line for finished jobs."""

    def broken(export: Function) -> Function:
        async def export_unfinished(queue: Queue, *variables: Any) -> str:
            lines: str = await export(queue, *variables)
            return "\n".join(line for line in lines.splitlines() if 'state="completed"' not in line)

        return export_unfinished

    damage.around(Queue, "exportPrometheusMetrics", broken)


@mutant("getters.counts-shifted", kills=("getters.counts",))
def counts_shifted(damage: Damage) -> None:
    """Each state gets the count of its neighbour."""

    def broken(count: Function) -> Function:
        async def get_counts(scripts: ReadScripts, states: list[str]) -> list[int]:
            counts: list[int] = await count(scripts, states)
            return counts[1:] + counts[:1]

        return get_counts

    damage.around(ReadScripts, "get_counts", broken)


@mutant("getters.count-forgets-delayed", kills=("getters.count-pending",))
def count_forgets_delayed(damage: Damage) -> None:
    """`count` does not count delayed jobs."""

    async def count(queue: Queue) -> int:
        return await queue.getJobCountByTypes("waiting", "paused", "prioritized")

    damage.replace(Queue, "count", count)


@mutant("getters.ghost", kills=("getters.job",))
def ghost(damage: Damage) -> None:
    """A job that does not exist is read as an empty one."""

    def broken(read: Function) -> Function:
        async def get_job(queue: Queue, job_id: str) -> Job:
            return await read(queue, job_id) or Job(queue, "", {}, {}, job_id)

        return get_job

    damage.around(Queue, "getJob", broken)


@mutant("getters.job-resultless", kills=("getters.job.fields",))
def job_resultless(damage: Damage) -> None:
    """A job read back lacks its result."""

    def broken(read: Function) -> Function:
        def from_hash(fields: Any, job_id: str) -> Job:
            job: Job = read(fields, job_id)
            job.returnvalue = None
            return job

        return from_hash

    damage.around(Job, "from_hash", broken)


@mutant("getters.page-excludes-end", kills=("getters.order",))
def page_excludes_end(damage: Damage) -> None:
    """The end of a page is not part of it."""
    damage.argument("getRanges", 1, lambda end: end - 1 if end > 0 else end)


@mutant("getters.delay-anything", kills=("getters.change-delay",))
def delay_anything(damage: Damage) -> None:
    """The delay of a waiting job can be changed."""

    def broken(change: Function) -> Function:
        async def change_delay(job: Job, delay: float) -> None:
            if await job.getState() == "delayed":
                await change(job, delay)

        return change_delay

    damage.around(Job, "changeDelay", broken)


@mutant("getters.workers-need-a-list", kills=("getters.workers-unlisted",))
def workers_need_a_list(damage: Damage) -> None:
    """Asking for workers fails on a Redis that does not know CLIENT LIST."""
    damage.replace(client_list, "_NO_CLIENT_LIST", re.compile("never"))


@mutant("getters.clean-unlimited", kills=("getters.clean",))
def clean_unlimited(damage: Damage) -> None:
    """Cleaning ignores the limit."""
    damage.argument("cleanJobsInSet", 2, lambda _limit: 1000)


@mutant("getters.complete-only", kills=("getters.job.missing-fields",))
def complete_only(damage: Damage) -> None:
    """A job without a timestamp is not read."""

    def broken(read: Function) -> Function:
        def from_hash(fields: Any, job_id: str) -> Job:
            if not fields.get("timestamp"):
                raise ValueError("a job needs a timestamp")
            job: Job = read(fields, job_id)
            return job

        return from_hash

    damage.around(Job, "from_hash", broken)


@mutant("getters.numbers-only", kills=("getters.job.missing-fields",))
def numbers_only(damage: Damage) -> None:
    """A job whose delay or priority is not a number cannot be read."""

    def broken(read: Function) -> Function:
        def from_hash(fields: Any, job_id: str) -> Job:
            for name in ("delay", "priority"):
                int(fields.get(name, "0"))
            job: Job = read(fields, job_id)
            return job

        return from_hash

    damage.around(Job, "from_hash", broken)


@mutant("progress.numbers-only", kills=("progress.stored",))
def numbers_only_progress(damage: Damage) -> None:
    """Progress is a number, and nothing else is taken."""

    def broken(update: Function) -> Function:
        async def update_progress(queue: Queue, job_id: str, progress: Any) -> None:
            if not isinstance(parse(getattr(progress, "text", "0")), (int, float)):
                raise InvalidArgument("progress must be a number")
            await update(queue, job_id, progress)

        return update_progress

    damage.around(Queue, "updateJobProgress", broken)


@mutant("log.read-forwards", kills=("log.read",))
def read_forwards(damage: Damage) -> None:
    """Log rows are always read from the oldest on."""

    def broken(read: Function) -> Function:
        async def get_logs(queue: Queue, job_id: str, start: int = 0, end: int = -1, _asc: bool = True) -> Any:
            return await read(queue, job_id, start, end, True)

        return get_logs

    damage.around(Queue, "getJobLogs", broken)


@mutant("log.page-counted", kills=("log.read",))
def page_counted(damage: Damage) -> None:
    """The total is the number of rows on the page."""

    def broken(read: Function) -> Function:
        async def get_logs(queue: Queue, *args: Any) -> dict[str, Any]:
            found: dict[str, Any] = await read(queue, *args)
            return {**found, "count": len(found["logs"])}

        return get_logs

    damage.around(Queue, "getJobLogs", broken)


@mutant("log.cleared-wholly", kills=("log.cleared",))
def cleared_wholly(damage: Damage) -> None:
    """Clearing a log keeps no rows."""

    def broken(clear: Function) -> Function:
        async def clear_logs(job: Job, _keep: int | None = None) -> None:
            await clear(job, None)

        return clear_logs

    damage.around(Job, "clearLogs", broken)


@mutant("job.does-not-go", kills=("lifecycle.remove.waiting",), by=("getters/a_job_removes_itself",))
def does_not_go(damage: Damage) -> None:
    """`remove` of a job has no effect."""

    async def stay(_job: Job, _opts: Any = None) -> None:
        return None

    damage.replace(Job, "remove", stay)


@mutant("job.always-waits", kills=("getters.state",), by=("getters/a_job_is_asked_where_it_is[job]",))
def always_waits(damage: Damage) -> None:
    """The state of every job is reported as waiting."""

    async def get_state(_job: Job) -> str:
        return "waiting"

    damage.replace(Job, "getState", get_state)
