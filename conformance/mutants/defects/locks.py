"""Locks that do not hold, or hold the wrong worker back."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.workers.locks import LockKeeper

_FOREIGN_LOCK_IS_OWN = (
    'if command[1] == "GET" and on(command, "lock") then local token = send(unpack(command)) return %s end'
)
_OWN_TOKEN = 'cmsgpack.unpack(ARGV[8])["token"]'


@mutant("lock.constant-token", kills=("lock.token",))
def constant_token(damage: Damage) -> None:
    """Every lock holds the same text."""
    damage.commands("moveToActive", 'if command[1] == "SET" and on(command, "lock") then command[3] = "1" end')


@mutant("lock.everlasting", kills=("lock.duration",))
def everlasting(damage: Damage) -> None:
    """The lock never expires."""
    damage.commands("moveToActive", 'if command[1] == "SET" and on(command, "lock") then drop(command, "PX") end')


@mutant("lock.in-seconds", kills=("lock.duration",))
def in_seconds(damage: Damage) -> None:
    """The lock lives for a thousandth of its time."""
    damage.commands(
        "moveToActive",
        'if command[1] == "SET" and on(command, "lock") then change(command, "PX", math.ceil(command[5] / 1000)) end',
    )


@mutant("lock.extension-keeps-end", kills=("lock.extend", "lock.extend-many"))
def extension_keeps_end(damage: Damage) -> None:
    """Extending a lock does not change when it expires."""
    damage.commands(
        "extendLock*", 'if command[1] == "SET" then drop(command, "PX") command[#command + 1] = "KEEPTTL" end'
    )


@mutant("lock.anyone-extends", kills=("lock.extend.stale-token-refused",))
def anyone_extends(damage: Damage) -> None:
    """Any token can extend a lock, and make one that is gone."""
    damage.commands("extendLock", 'if command[1] == "GET" then return ARGV[1] end')


@mutant("lock.revived", kills=("lock.extend.stale-token-refused",))
def revived(damage: Damage) -> None:
    """Extending a lock that is gone makes it anew."""
    damage.commands("extendLock", 'if command[1] == "GET" then return send(unpack(command)) or ARGV[1] end')


@mutant("lock.losses-untold", kills=("lock.extend-many",))
def losses_untold(damage: Damage) -> None:
    """Renewing several locks never tells which were lost."""

    def broken(extend: Function) -> Function:
        async def extend_locks(
            scripts: MoveScripts, job_ids: list[str], tokens: list[str], duration: float
        ) -> list[str]:
            await extend(scripts, job_ids, tokens, duration)
            return []

        return extend_locks

    damage.around(MoveScripts, "extend_locks", broken)


@mutant("lock.foreign-accepted", kills=("lock.stale-token-refused", "lock.lost.runs-twice"))
def foreign_accepted(damage: Damage) -> None:
    """A worker can finish a job that another one holds."""
    damage.commands("moveToFinished", _FOREIGN_LOCK_IS_OWN % f"token and {_OWN_TOKEN}")


@mutant("lock.missing-accepted", kills=("lock.missing-refused",))
def missing_accepted(damage: Damage) -> None:
    """A worker can finish a job whose lock is gone."""
    damage.commands("moveToFinished", _FOREIGN_LOCK_IS_OWN % f"token or {_OWN_TOKEN}")


@mutant("lock.kept", kills=("lock.released",))
def kept(damage: Damage) -> None:
    """A finished job stays locked."""
    damage.commands("moveToFinished", 'if command[1] == "DEL" and on(command, "lock") then return 1 end')


@mutant("lock.kept-by-retry", kills=("lock.released",))
def kept_by_retry(damage: Damage) -> None:
    """A job that waits for its next attempt stays locked."""
    damage.commands("retryJob", 'if command[1] == "DEL" and on(command, "lock") then return 1 end')


@mutant("lock.never-renewed", kills=("lock.renewed-by-worker",))
def never_renewed(damage: Damage) -> None:
    """A worker does not renew the locks of its running jobs."""
    damage.replace(LockKeeper, "start", lambda _keeper: None)
