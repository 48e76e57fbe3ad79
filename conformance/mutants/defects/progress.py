"""Progress, logs and data changed wrongly."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.encoding.js_json import parse
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.edits import JobEdits
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.queue import Queue

_BLIND = 'if command[1] == "EXISTS" then return 1 end'
"""Lua: the script does not see that a job is missing."""


@mutant("progress.numbers-only", kills=("progress.stored",))
def numbers_only(damage: Damage) -> None:
    """Progress is a number, and nothing else is taken."""

    def broken(update: Function) -> Function:
        async def update_progress(job: JobEdits, progress: Any) -> None:
            if not isinstance(parse(getattr(progress, "text", "0")), (int, float)):
                raise InvalidArgument("progress must be a number")
            await update(job, progress)

        return update_progress

    damage.around(JobEdits, "updateProgress", broken)


@mutant("progress.for-nobody", kills=("progress.missing-job",))
def progress_for_nobody(damage: Damage) -> None:
    """Progress of a missing job makes a hash."""
    damage.commands("updateProgress", _BLIND)


@mutant("log.prepended", kills=("log.appended",))
def prepended(damage: Damage) -> None:
    """The newest log row is first."""
    damage.commands("addLog", 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("log.uncounted", kills=("log.appended",))
def uncounted(damage: Damage) -> None:
    """The answer is not the number of rows."""

    def broken(append: Function) -> Function:
        async def add_log(owner: Any, job_id: str, row: str, keep: int | None = None) -> int:
            await append(owner, job_id, row, keep)
            return 1

        return add_log

    damage.replace(Job, "addJobLog", staticmethod(broken(Job.addJobLog)))


@mutant("log.keeps-oldest", kills=("log.keep",))
def keeps_oldest(damage: Damage) -> None:
    """A limited log keeps its oldest rows."""
    damage.commands("addLog", 'if command[1] == "LTRIM" then command[3], command[4] = 0, -command[3] - 1 end')


@mutant("log.unlimited", kills=("log.keep",))
def unlimited(damage: Damage) -> None:
    """`keepLogs` has no effect."""
    damage.argument("addLog", 2, lambda _keep: None)


@mutant("log.for-nobody", kills=("log.missing-job",))
def log_for_nobody(damage: Damage) -> None:
    """A missing job gets a log."""
    damage.commands("addLog", _BLIND)


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
        async def clear_logs(job: JobEdits, _keep: int | None = None) -> None:
            await clear(job, None)

        return clear_logs

    damage.around(JobEdits, "clearLogs", broken)


@mutant("data.update-tells", kills=("data.updated",))
def update_tells(damage: Damage) -> None:
    """Updating the data leaves an event."""

    def broken(update: Function) -> Function:
        async def update_data(job: JobEdits, data: Any) -> None:
            await update(job, data)
            command = ("XADD", job.owner.keys.key("events"), "*", "event", "updated", "jobId", job.id)
            await job.owner.connection.command(*command)

        return update_data

    damage.around(JobEdits, "updateData", broken)


@mutant("data.update-lost", kills=("data.updated",))
def update_lost(damage: Damage) -> None:
    """Updating the data changes only the object of this process."""
    damage.commands("updateData", 'if command[1] == "HSET" then return 0 end')


@mutant("data.for-nobody", kills=("data.missing-job",))
def data_for_nobody(damage: Damage) -> None:
    """Updating the data of a missing job makes a hash."""
    damage.commands("updateData", _BLIND)
