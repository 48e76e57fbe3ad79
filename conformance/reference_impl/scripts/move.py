"""Script calls that move a job between states: fetching, finishing, retrying, delaying, and its lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from conformance.protocol import keys as names
from conformance.reference_impl.connection.connection import flat_mapping, text, texts
from conformance.reference_impl.errors import script_error
from conformance.reference_impl.js_values import is_number, truthy
from conformance.reference_impl.packing import pack, pack_fields, pack_with
from conformance.reference_impl.scripts.completion import CompletionBytes
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptCalls, is_refusal

NO_TOKEN: Final = "0"
"""This token skips the lock check of a script and leaves any lock where it is."""

FINISH: Final = "moveToFinished"

_ACTIVE: Final = "active"
_FETCH_KEYS: Final = (
    *(names.WAIT, names.ACTIVE, names.PRIORITIZED, names.EVENTS, names.STALLED, names.LIMITER),
    *(names.DELAYED, names.PAUSED, names.META, names.PRIORITY_COUNTER),
)


class FetchReply(NamedTuple):
    """Reply of a script that fetches: a job, or why there is none.

    `fields` is the job hash, None without a job. `limit_ms`: the rate limit ends in that many ms. `next_delayed_ms`:
    the next delayed job is due at that Unix time. Both 0 where they do not apply.
    """

    fields: dict[str, str] | None = None
    job_id: str | None = None
    limit_ms: float = 0
    next_delayed_ms: float = 0


@dataclass(frozen=True)
class FinishArguments:
    """How a job ends. `remove_option` is the job's own removeOnComplete or removeOnFail, if it has one."""

    job_id: str
    state: Literal["completed", "failed"]
    value: str
    token: str
    job_opts: Mapping[str, Any]
    fetch_next: bool
    fields: Mapping[str, Any] | None = None


class MoveScripts(ScriptCalls):
    """Moving jobs."""

    _completion: CompletionBytes | None = None

    @cached_property
    def _fetch_keys(self) -> list[str]:
        """Full keys that every job needs, made once."""
        return self._keys.keys(*_FETCH_KEYS)

    async def move_to_active(self, token: str) -> FetchReply:
        """Fetch the next job and lock it under the token."""
        opts = self._owner.opts
        packed = pack(
            {
                "token": token,
                "lockDuration": opts.get("lockDuration"),
                "limiter": opts.get("limiter"),
                "name": opts.get("name"),
            }
        )
        keys = [*self._fetch_keys, self._keys.key(names.MARKER)]
        reply = await self._run("moveToActive", keys, self._keys.base, self._now(), packed)
        return read_fetched(reply)

    async def move_to_finished(self, finish: FinishArguments) -> tuple[FetchReply | None, int]:
        """Complete or fail a job; returns what was fetched next, if asked for, and the time written as finishedOn.

        Raises ScriptError: missing-job, missing-lock, wrong-state, pending-dependencies, lock-mismatch,
        failed-children.
        """
        # Read once: the caller's job must show exactly the time that the script stores.
        finished_on = self._now()
        reply = await self._runner.run(self.finish_call(finish, finished_on))
        return self.read_finished(finish.job_id, reply), finished_on

    def finish_call(self, finish: FinishArguments, finished_on: int) -> EvalCommand:
        """Return the call of moveToFinished, not sent yet; `finished_on` is Unix ms."""
        keys = [
            *self._fetch_keys,
            *self._keys.keys(finish.state, finish.job_id, f"{names.METRICS}:{finish.state}", names.MARKER),
        ]
        property_name = "returnvalue" if finish.state == "completed" else "failedReason"
        arguments = (
            *(finish.job_id, finished_on, property_name, finish.value, finish.state),
            # Checked at the last moment: a job that is fetched for a closing worker would stall.
            1 if finish.fetch_next and not self._owner.closing else 0,
            self._keys.base,
            pack_with("token", finish.token, self._finish_options(finish.state, finish.job_opts)),
            pack_fields(finish.fields) if finish.fields else None,
        )
        return EvalCommand(FINISH, keys, arguments)

    def packed_completion(
        self, job_id: str, value: str, token: str, job_opts: Mapping[str, Any], *, fetch_next: bool
    ) -> tuple[bytes, int] | None:
        """Return the bytes of the `finish_call` that completes a job, and the time in it (Unix ms).

        None while the script's text has to go first. Raises UnicodeEncodeError for a text with a lone surrogate.
        """
        finished_on = self._now()
        sha1 = self._runner.known_digest(FINISH)
        if sha1 is None:
            return None
        if self._completion is None or self._completion.sha1 != sha1:
            self._completion = CompletionBytes(self._keys, self._fetch_keys, sha1)
        options = pack_with("token", token, self._finish_options("completed", job_opts))
        fetch_next = fetch_next and not self._owner.closing
        return self._completion.of_job(job_id, finished_on, value, options, fetch_next=fetch_next), finished_on

    def read_finished(self, job_id: str, reply: Any) -> FetchReply | None:
        """Read the reply of moveToFinished; raises ScriptError, see `move_to_finished`."""
        if is_refusal(reply):
            raise script_error(reply, command=FINISH, job=job_id, state=_ACTIVE)
        return None if reply == 0 else read_fetched(reply)

    async def move_to_delayed(
        self,
        job_id: str,
        delay: float,
        token: str = NO_TOKEN,
        *,
        skip_attempt: bool = False,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Move from active to delayed, due `delay` ms from now.

        `skip_attempt`: this does not count as an attempt. Raises ScriptError.
        """
        keys = self._keys.keys(
            *(names.MARKER, names.ACTIVE, names.PRIORITIZED, names.DELAYED),
            *(job_id, names.EVENTS, names.META, names.STALLED),
        )
        await self._run_on_job(
            "moveToDelayed",
            job_id,
            keys,
            *(self._keys.base, self._now(), job_id, token, delay, "1" if skip_attempt else "0"),
            pack_fields(fields) if fields else None,
            state=_ACTIVE,
        )

    async def retry_job(
        self, job_id: str, token: str = NO_TOKEN, *, lifo: bool = False, fields: Mapping[str, Any] | None = None
    ) -> None:
        """Move a failed attempt from active straight back to wait. Raises ScriptError."""
        keys = self._keys.keys(
            *(names.ACTIVE, names.WAIT, names.PAUSED, job_id, names.META, names.EVENTS),
            *(names.DELAYED, names.PRIORITIZED, names.PRIORITY_COUNTER, names.MARKER, names.STALLED),
        )
        await self._run_on_job(
            "retryJob",
            job_id,
            keys,
            *(self._keys.base, self._now(), "RPUSH" if lifo else "LPUSH", job_id, token),
            pack_fields(fields) if fields else None,
            state=_ACTIVE,
        )

    async def move_to_wait(self, job_id: str, token: str = NO_TOKEN) -> int:
        """Put an active job back, next to run; returns the ms that the rate limit still lasts, or 0.

        Raises ScriptError.
        """
        keys = self._keys.keys(
            *(names.ACTIVE, names.WAIT, names.STALLED, names.PAUSED, names.META),
            *(names.LIMITER, names.PRIORITIZED, names.MARKER, names.EVENTS),
        )
        reply = await self._run_on_job(
            "moveJobFromActiveToWait", job_id, keys, job_id, token, self._keys.key(job_id), state=_ACTIVE
        )
        return int(reply)

    async def move_to_waiting_children(self, job_id: str, token: str, child_key: str = "") -> bool:
        """Let an active job wait for its children; False when none is pending. Raises ScriptError."""
        keys = self._keys.keys(
            *(names.ACTIVE, names.WAITING_CHILDREN, job_id, f"{job_id}:{names.DEPENDENCIES}"),
            *(f"{job_id}:{names.UNSUCCESSFUL}", names.STALLED, names.EVENTS),
        )
        reply = await self._run_on_job(
            "moveToWaitingChildren",
            job_id,
            keys,
            *(token, child_key, self._now(), job_id, self._keys.base),
            state=_ACTIVE,
        )
        return bool(reply == 0)

    async def extend_lock(self, job_id: str, token: str, duration: float) -> bool:
        """Renew a lock for `duration` ms; False when the token does not own it."""
        keys = [self._keys.of_job(job_id, names.LOCK), self._keys.key(names.STALLED)]
        return bool(await self._run("extendLock", keys, token, duration, job_id))

    async def extend_locks(self, job_ids: Sequence[str], tokens: Sequence[str], duration: float) -> list[str]:
        """Renew several locks for `duration` ms; returns the ids whose token does not own the lock."""
        keys = self._keys.keys(names.STALLED)
        reply = await self._run("extendLocks", keys, self._keys.base, pack(list(tokens)), pack(list(job_ids)), duration)
        return texts(reply or [])

    async def move_stalled_jobs_to_wait(self) -> list[str]:
        """One stalled check; returns the recovered ids, none when another worker checked within the interval."""
        opts = self._owner.opts
        keys = self._keys.keys(
            *(names.STALLED, names.WAIT, names.ACTIVE, names.STALLED_CHECK),
            *(names.META, names.PAUSED, names.MARKER, names.EVENTS),
        )
        reply = await self._run(
            "moveStalledJobsToWait",
            keys,
            *(opts.get("maxStalledCount"), self._keys.base, self._now(), opts.get("stalledInterval")),
        )
        return texts(reply or [])

    def _now(self) -> int:
        return self._owner.clock.now_ms()

    def _finish_options(self, state: Literal["completed", "failed"], job: Mapping[str, Any]) -> dict[str, Any]:
        """All options of moveToFinished for a job with these options, but the token, which comes first."""
        opts = self._owner.opts
        option = "removeOnComplete" if state == "completed" else "removeOnFail"
        return {
            "name": opts.get("name"),
            "keepJobs": keep_jobs(job, opts, option),
            "limiter": opts.get("limiter"),
            "lockDuration": opts.get("lockDuration"),
            "attempts": job.get("attempts"),
            # An empty text switches metrics off; nil would be missing from the packed map.
            "maxMetricsSize": (opts.get("metrics") or {}).get("maxDataPoints") or "",
            "fpof": truthy(job.get("failParentOnFailure")),
            "cpof": truthy(job.get("continueParentOnFailure")),
            "idof": truthy(job.get("ignoreDependencyOnFailure")),
            "rdof": truthy(job.get("removeDependencyOnFailure")),
        }


def keep_jobs(job_opts: Mapping[str, Any], worker_opts: Mapping[str, Any], option: str) -> Any:
    """How many finished jobs to keep: the job's own option wins; count -1 keeps all, count 0 none."""
    if option not in job_opts:
        return worker_opts.get(option) or {"count": -1}
    chosen = job_opts[option]
    if isinstance(chosen, Mapping):
        return chosen
    if is_number(chosen):
        return {"count": chosen}
    return {"count": 0 if truthy(chosen) else -1}


def read_fetched(reply: Any) -> FetchReply:
    """Read a reply `[hash, id, limit, next delayed]`; without a job the first two are 0."""
    if not reply:
        return FetchReply()
    fields, job_id, limit_ms, next_delayed_ms = reply
    return FetchReply(
        fields=flat_mapping(fields) if fields else None,
        # Without a job the id is 0, which is a number and not an id.
        job_id=text(job_id) if fields else None,
        limit_ms=float(limit_ms or 0),
        next_delayed_ms=float(next_delayed_ms or 0),
    )
