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
from conformance.reference_impl.scripts.manage import QueueScripts, ReadScripts

_BLIND = 'if command[1] == "EXISTS" then return 1 end'
"""Lua: the script does not see that a job is missing."""


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


@mutant("getters.priority-edge", kills=("getters.counts-per-priority",))
def priority_edge(damage: Damage) -> None:
    """A count per priority takes in the next priority as well."""
    damage.commands(
        "getCountsPerPriority", 'if command[1] == "ZCOUNT" then command[4] = tonumber(command[4]) + 4294967296 end'
    )


@mutant("getters.state-coarse", kills=("getters.state",))
def state_coarse(damage: Damage) -> None:
    """A prioritized job is said to be waiting."""

    def broken(state: Function) -> Function:
        async def get_state(scripts: ReadScripts, job_id: str) -> str:
            found: str = await state(scripts, job_id)
            return "waiting" if found == "prioritized" else found

        return get_state

    damage.around(ReadScripts, "get_state", broken)


@mutant("getters.ghost", kills=("getters.job",))
def ghost(damage: Damage) -> None:
    """A job that does not exist is read as an empty one."""

    def broken(read: Function) -> Function:
        async def get_job(queue: Queue, job_id: str) -> Job:
            return await read(queue, job_id) or Job(queue, "", {}, {}, job_id)

        return get_job

    damage.around(Queue, "getJob", broken)


@mutant("getters.job-timeless", kills=("getters.job.fields",))
def job_timeless(damage: Damage) -> None:
    """A job read back lacks the number of attempts made."""

    def broken(read: Function) -> Function:
        def from_hash(fields: Any, job_id: str) -> Job:
            job: Job = read(fields, job_id)
            job.attemptsMade = 0
            return job

        return from_hash

    damage.around(Job, "from_hash", broken)


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


@mutant("getters.promote-keeps-delay", kills=("getters.promote",))
def promote_keeps_delay(damage: Damage) -> None:
    """A promoted job keeps its delay."""
    damage.commands("promote", 'if command[1] == "HSET" then return 0 end')


@mutant("getters.promote-runs-next", kills=("getters.promote",))
def promote_runs_next(damage: Damage) -> None:
    """A promoted job goes before those that wait."""
    damage.commands("promote", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


@mutant("getters.promote-silent", kills=("order.marker.base",), by=("events/promoting_leaves_waiting_from_delayed",))
def promote_silent(damage: Damage) -> None:
    """Promoting does not wake a worker."""
    damage.commands("promote", 'if command[1] == "ZADD" and on(command, "marker") then return 0 end')


@mutant("getters.promote-anything", kills=("getters.promote.wrong-state",))
def promote_anything(damage: Damage) -> None:
    """A waiting job can be promoted."""
    damage.commands("promote", 'if command[1] == "ZREM" then send(unpack(command)) return 1 end')


@mutant("getters.delay-not-stored", kills=("getters.change-delay",))
def delay_not_stored(damage: Damage) -> None:
    """A changed delay moves the job but is not stored."""
    damage.commands("changeDelay", 'if command[1] == "HSET" and at(command, "delay") then return 0 end')


@mutant("getters.delay-from-added", kills=("order.delayed.score", "event.delayed"), by=("getters/changing_a_delay",))
def delay_from_added(damage: Damage) -> None:
    """A changed delay counts from the time of adding."""
    damage.commands(
        "changeDelay",
        'if command[1] == "ZADD" and on(command, "delayed") then '
        'command[3] = (tonumber(send("HGET", ARGV[4], "timestamp")) + tonumber(ARGV[1])) * 4096 end '
        'if event(command) == "delayed" then change(command, "delay", '
        'tonumber(send("HGET", ARGV[4], "timestamp")) + tonumber(ARGV[1])) end',
    )


@mutant("getters.delay-anything", kills=("getters.change-delay",))
def delay_anything(damage: Damage) -> None:
    """The delay of a waiting job can be changed."""

    def broken(change: Function) -> Function:
        async def change_delay(job: Job, delay: float) -> None:
            if await job.getState() == "delayed":
                await change(job, delay)

        return change_delay

    damage.around(Job, "changeDelay", broken)


@mutant("getters.priority-not-stored", kills=("getters.change-priority",))
def priority_not_stored(damage: Damage) -> None:
    """A changed priority moves the job but is not stored."""
    damage.commands("changePriority", 'if command[1] == "HSET" then return 0 end')


@mutant("getters.priority-not-moved", kills=("getters.change-priority",))
def priority_not_moved(damage: Damage) -> None:
    """A changed priority is stored but the job stays where it is."""
    damage.commands("changePriority", 'if command[1] == "ZREM" or command[1] == "LREM" then return 0 end')


@mutant("getters.drain-everything", kills=("getters.drain",))
def drain_everything(damage: Damage) -> None:
    """Draining always removes delayed jobs too."""
    damage.argument("drain", 1, lambda _delayed: "1")


@mutant("getters.drain-keeps-hashes", kills=("getters.drain",))
def drain_keeps_hashes(damage: Damage) -> None:
    """Draining empties the containers and leaves the jobs."""
    damage.commands("drain", 'if command[1] == "DEL" then return 0 end')


@mutant("getters.workers-need-a-list", kills=("getters.workers-unlisted",))
def workers_need_a_list(damage: Damage) -> None:
    """Asking for workers fails on a Redis that does not know CLIENT LIST."""
    damage.replace(client_list, "_NO_CLIENT_LIST", re.compile("never"))


@mutant("getters.drain-thousands-fails", kills=("getters.drain",))
def drain_thousands_fails(damage: Damage) -> None:
    """Draining passes all ids to one command, which Lua refuses from 8000 on."""
    damage.commands(
        "drain",
        'if command[1] == "ZREM" and send("ZCARD", command[2]) >= 8000 then error("too many results to unpack") end',
    )


@mutant("getters.clean-takes-scores-for-times", kills=("getters.clean",))
def clean_takes_scores_for_times(damage: Damage) -> None:
    """With a limit, cleaning compares the scores of delayed and prioritized jobs with the time."""
    damage.commands(
        "cleanJobsInSet", 'if command[1] == "ZRANGEBYSCORE" and command[5] == "LIMIT" then command[4] = ARGV[2] end'
    )


@mutant("getters.clean-unlimited", kills=("getters.clean",))
def clean_unlimited(damage: Damage) -> None:
    """Cleaning ignores the limit."""
    damage.argument("cleanJobsInSet", 2, lambda _limit: 1000)


@mutant("getters.clean-young", kills=("getters.clean",))
def clean_young(damage: Damage) -> None:
    """Cleaning ignores the grace period."""
    damage.argument("cleanJobsInSet", 1, lambda latest: latest + 86_400_000)


@mutant("getters.clean-silent", kills=("getters.clean",))
def clean_silent(damage: Damage) -> None:
    """Cleaning leaves no event."""
    damage.commands("cleanJobsInSet", 'if event(command) == "cleaned" then return "0-0" end')


@mutant("getters.clean-leaves-logs", kills=("getters.clean",))
def clean_leaves_logs(damage: Damage) -> None:
    """Cleaning leaves the logs of the jobs."""
    damage.commands(
        "cleanJobsInSet",
        'if command[1] == "DEL" then for place = #command, 2, -1 do '
        'if string.sub(command[place], -5) == ":logs" then table.remove(command, place) end end end',
    )


@mutant("getters.obliterate-forced", kills=("getters.obliterate",))
def obliterate_forced(damage: Damage) -> None:
    """Obliterating does not spare active jobs."""

    def broken(obliterate: Function) -> Function:
        async def always(scripts: QueueScripts, *, count: int, force: bool) -> bool:
            return bool(await obliterate(scripts, count=count, force=force or True))

        return always

    damage.around(QueueScripts, "obliterate", broken)


@mutant("getters.obliterate-leaves-meta", kills=("getters.obliterate",))
def obliterate_leaves_meta(damage: Damage) -> None:
    """Obliterating leaves `meta` behind."""
    damage.commands(
        "obliterate",
        'if command[1] == "DEL" then for place = #command, 2, -1 do '
        'if string.sub(command[place], -5) == ":meta" then table.remove(command, place) end end end',
    )


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


@mutant(
    "late.unprioritized-runs-next",
    kills=("getters.change-priority",),
    by=("getters/changing_a_priority",),
)
def unprioritized_runs_next(damage: Damage) -> None:
    """A job that loses its priority goes before those that wait."""
    damage.commands("changePriority", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


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


@mutant("progress.for-nobody", kills=("progress.missing-job",))
def progress_for_missing_job(damage: Damage) -> None:
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
def log_for_missing_job(damage: Damage) -> None:
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
        async def clear_logs(job: Job, _keep: int | None = None) -> None:
            await clear(job, None)

        return clear_logs

    damage.around(Job, "clearLogs", broken)


@mutant("data.update-tells", kills=("data.updated",))
def update_leaves_event(damage: Damage) -> None:
    """Updating the data leaves an event."""

    def broken(update: Function) -> Function:
        async def update_data(job: Job, data: Any) -> None:
            await update(job, data)
            command = ("XADD", job.owner.keys.key("events"), "*", "event", "updated", "jobId", job.id)
            await job.owner.connection.command(*command)
            damage.witness.note()

        return update_data

    damage.around(Job, "updateData", broken)


@mutant("data.update-lost", kills=("data.updated",))
def update_lost(damage: Damage) -> None:
    """Updating the data changes only the object of this process."""
    damage.commands("updateData", 'if command[1] == "HSET" then return 0 end')


@mutant("data.for-nobody", kills=("data.missing-job",))
def data_for_missing_job(damage: Damage) -> None:
    """Updating the data of a missing job makes a hash."""
    damage.commands("updateData", _BLIND)


@mutant(
    "getters.promote-all-turned",
    kills=("getters.promote",),
    by=("moving/delayed_jobs_are_promoted_together[1000]",),
)
def promote_all_turned(damage: Damage) -> None:
    """Jobs that are promoted together run in the opposite order."""
    damage.commands("moveJobsToWait", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


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
