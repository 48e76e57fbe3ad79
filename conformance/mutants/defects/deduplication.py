"""Deduplication that lets duplicates through, or holds back what is none."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.jobs import options
from conformance.reference_impl.queue import Queue

_KEY = 'string.find(command[2], ":de:", 1, true)'
"""Lua condition: the command is about a deduplication key."""
_FREED = f'if command[1] == "DEL" and {_KEY} then return 0 end'
_OPTIONS = 'cmsgpack.unpack(ARGV[3])["de"]'
"""Lua: the option `deduplication` of the job that is added."""
_REMEMBER_OWNER = (
    f'if command[1] == "GET" and {_KEY} then memory.owner = send(unpack(command)) return memory.owner end '
)
_RESTARTS = f'command[1] == "SET" and {_KEY} and memory.owner and at(command, "PX")'
"""Lua condition: the ttl of an id that is taken restarts."""


@mutant("dedup.ignored", kills=("dedup.simple", "dedup.ttl"))
def ignored(damage: Damage) -> None:
    """Every add stores a job, even if its deduplication id is taken."""
    damage.commands("add*Job", f'if command[1] == "SET" and {_KEY} then send(unpack(command)) return {{ok = "OK"}} end')


@mutant("dedup.silent", kills=("dedup.simple",))
def silent(damage: Damage) -> None:
    """There is no event `deduplicated`."""
    damage.commands("add*Job", 'if event(command) == "deduplicated" then return "0-0" end')


@mutant("dedup.one-event", kills=("dedup.simple",))
def one_event(damage: Damage) -> None:
    """There is no event `debounced`."""
    damage.commands("add*Job", 'if event(command) == "debounced" then return "0-0" end')


@mutant("dedup.field-missing", kills=("dedup.field",))
def field_missing(damage: Damage) -> None:
    """A job does not name its deduplication id."""
    damage.commands("add*Job", 'if command[1] == "HMSET" and at(command, "deid") then drop(command, "deid") end')


@mutant("dedup.never-ends", kills=("dedup.simple.ends",))
def never_ends(damage: Damage) -> None:
    """An id stays taken when its owner is finished."""
    damage.commands("moveToFinished", _FREED)


@mutant("dedup.failure-keeps", kills=("dedup.simple.ends",))
def failure_keeps(damage: Damage) -> None:
    """An id stays taken when its owner has failed."""
    damage.commands("moveToFinished", f'if ARGV[5] == "failed" and command[1] == "DEL" and {_KEY} then return 0 end')


@mutant(
    "dedup.failed-parent-keeps",
    kills=("dedup.simple.ends",),
    by=("flow-failures/a_parent_that_fails_through_its_child_frees_its_id",),
)
def failed_parent_keeps(damage: Damage) -> None:
    """A parent that fails through its child keeps its deduplication id."""
    through_child = 'ARGV[3] == "failedReason" and string.find(ARGV[4], "^child .* failed$")'
    damage.commands("moveToFinished", f'if command[1] == "DEL" and {_KEY} and {through_child} then return 0 end')


@mutant("dedup.removal-keeps", kills=("dedup.removal",))
def removal_keeps(damage: Damage) -> None:
    """An id stays taken when its owner is removed."""
    damage.commands("removeJob", _FREED)


@mutant("dedup.anyone-frees", kills=("dedup.removal",))
def anyone_frees(damage: Damage) -> None:
    """Removing any job that names an id frees it."""
    damage.commands("removeJob", f'if command[1] == "GET" and {_KEY} then return ARGV[1] end')


@mutant("dedup.ttl-ignored", kills=("dedup.ttl",))
def ttl_ignored(damage: Damage) -> None:
    """`ttl` has no effect."""
    damage.commands("add*Job", f'if command[1] == "SET" and {_KEY} then drop(command, "PX") end')


@mutant("dedup.ttl-in-seconds", kills=("dedup.ttl",))
def ttl_in_seconds(damage: Damage) -> None:
    """`ttl` is taken for seconds."""
    damage.commands(
        "add*Job",
        f'if command[1] == "SET" and {_KEY} and at(command, "PX") then '
        'change(command, "PX", 1000 * command[at(command, "PX")]) end',
    )


@mutant("dedup.completion-ends-ttl", kills=("dedup.ttl",))
def completion_ends_ttl(damage: Damage) -> None:
    """An id with ttl is free when its owner has completed."""
    damage.commands("moveToFinished", f'if command[1] == "PTTL" and {_KEY} then return -1 end')


@mutant("dedup.never-extended", kills=("dedup.extend",))
def never_extended(damage: Damage) -> None:
    """`extend` has no effect."""
    damage.commands(
        "add*Job",
        _REMEMBER_OWNER + f'if {_RESTARTS} and not {_OPTIONS}["replace"] then '
        'drop(command, "PX") command[#command + 1] = "KEEPTTL" end',
    )


@mutant("dedup.always-extended", kills=("dedup.extend",))
def always_extended(damage: Damage) -> None:
    """Every add restarts the ttl, without `extend` as well."""
    damage.commands(
        "add*Job",
        f'if command[1] == "SET" and {_KEY} and command[6] == "NX" then local reply = send(unpack(command)) '
        'if not reply then send("PEXPIRE", command[2], command[5]) end return reply end',
    )


@mutant("dedup.never-replaced", kills=("dedup.replace",))
def never_replaced(damage: Damage) -> None:
    """`replace` keeps the delayed owner, and ignores the new job."""
    damage.commands("add*Job", 'if command[1] == "ZREM" and on(command, "delayed") then return 0 end')


@mutant("dedup.always-replaced", kills=("dedup.replace",))
def always_replaced(damage: Damage) -> None:
    """`replace` also replaces an owner that is not delayed any more."""
    damage.commands(
        "add*Job", 'if command[1] == "ZREM" and on(command, "delayed") then send(unpack(command)) return 1 end'
    )


@mutant("dedup.debounce-restarts", kills=("dedup.debounce",))
def debounce_restarts(damage: Damage) -> None:
    """Replacing restarts the ttl, without `extend` as well."""
    damage.commands(
        "add*Job",
        f'if command[1] == "SET" and command[4] == "KEEPTTL" then command[4] = "PX" command[5] = {_OPTIONS}["ttl"] end',
    )


@mutant("dedup.debounce-runs-on", kills=("dedup.debounce",))
def debounce_runs_on(damage: Damage) -> None:
    """Replacing lets the ttl run on, with `extend` as well."""
    damage.commands(
        "add*Job",
        _REMEMBER_OWNER + f'if {_RESTARTS} and {_OPTIONS}["replace"] then '
        'drop(command, "PX") command[#command + 1] = "KEEPTTL" end',
    )


@mutant("dedup.key-stays", kills=("dedup.key-removal",))
def key_stays(damage: Damage) -> None:
    """Freeing an id is only claimed."""

    async def pretend(_queue: Queue, _deduplication_id: str) -> int:
        return 1

    damage.replace(Queue, "removeDeduplicationKey", pretend)


@mutant("dedup.key-removal-uncounted", kills=("dedup.key-removal",))
def key_removal_uncounted(damage: Damage) -> None:
    """Freeing an id that is free is said to have worked."""

    def broken(remove: Function) -> Function:
        async def remove_key(queue: Queue, deduplication_id: str) -> int:
            await remove(queue, deduplication_id)
            return 1

        return remove_key

    damage.around(Queue, "removeDeduplicationKey", broken)


@mutant("dedup.before-duplicates", kills=("dedup.duplicate-first",))
def before_duplicates(damage: Damage) -> None:
    """An add with a job id that exists comes to deduplication."""
    damage.commands("add*Job", f'if command[1] == "EXISTS" and {_OPTIONS} then return 0 end')


@mutant("dedup.nameless", kills=("dedup.id-required",))
def nameless(damage: Damage) -> None:
    """The option deduplication without an id is taken, and has no effect."""
    damage.replace(options, "_validate_deduplication", lambda _options: None)


@mutant("late.owner-unknown", kills=("dedup.owner",))
def owner_unknown(damage: Damage) -> None:
    """Asking for the owner of a deduplication id returns nothing."""

    async def no_owner(_queue: Queue, _deduplication_id: str) -> None:
        return None

    damage.replace(Queue, "getDeduplicationJobId", no_owner)


@mutant("dedup.retry-frees", kills=("dedup.simple.ends",), by=("deduplication/a_retry_keeps_the_id",))
def retry_frees(damage: Damage) -> None:
    """A job that waits for its next attempt gives its deduplication id away."""
    damage.commands(
        "retryJob",
        'if command[1] == "DEL" and on(command, "lock") then '
        'local base, job = string.match(command[2], "^(.*):([^:]+):lock$") '
        'local owned = send("HGET", base .. ":" .. job, "deid") '
        'if owned then send("DEL", base .. ":de:" .. owned) end end',
    )
