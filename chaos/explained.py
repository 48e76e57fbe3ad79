"""What a run may find although nobody has broken anything: how Node itself behaves, with the ledger row that says so.

An explanation excuses findings and no invariant: everything else that an invariant finds still fails the run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Globs over client, invariant and fault (or crash point), and a regular expression found in the message."""

    client: str
    check: str
    where: str
    message: str
    reason: str
    row: str


UNCHECKED_FLOW = (
    "FlowProducer.add resolves without looking at the replies inside EXEC: a refused flow seems to be added"
)
RESENT = "ioredis sends commands whose reply was lost again after it has reconnected (autoResendUnfulfilledCommands)"
PAUSES = "BullMQ lets ioredis pause for min(e^n, 20000) ms, at least 1 s, before attempt n to reconnect"

EXPLANATIONS: tuple[Explanation, ...] = (
    *(
        Explanation(
            client="*",
            check="durability",
            where=where,
            message=r"acknowledged by flow\.add",
            reason=UNCHECKED_FLOW,
            row="chaos.flow-refused-unnoticed",
        )
        for where in (
            "redis.readonly",
            "redis.misconf",
            "redis.oom",
            "redis.busy",
            "evict.*",
            "replica.*",
            "sentinel.*",
        )
    ),
    Explanation(
        client="node",
        check="durability",
        where="redis.script-flush",
        message=r"acknowledged by flow\.add",
        reason=UNCHECKED_FLOW,
        row="chaos.flow-refused-unnoticed",
    ),
    *(
        Explanation(
            client="node",
            check="indeterminate",
            where=where,
            message=r"there are \d+ such jobs",
            reason=RESENT,
            row="chaos.node-resends",
        )
        for where in ("network.*", "redis.*", "* cut", "replica.*", "sentinel.*", "cluster.*")
    ),
    *(
        Explanation(
            client="node",
            check=check,
            where="redis.away-20s",
            message=r"work went on after|after it was due",
            reason=PAUSES,
            row="chaos.node-reconnect-pause",
        )
        for check in ("progress", "timing")
    ),
)


def explanation_of(client: str, check: str, where: str, message: str) -> Explanation | None:
    """The explanation of a finding, if there is one."""
    for one in EXPLANATIONS:
        fits = fnmatchcase(client, one.client) and one.check == check and fnmatchcase(where, one.where)
        if fits and re.search(one.message, message):
            return one
    return None
