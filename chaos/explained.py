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
FORGOTTEN_SCRIPTS = f"{UNCHECKED_FLOW} (NOSCRIPT: this Redis has forgotten the scripts, or never had them)"
RESENT = "ioredis sends commands whose reply was lost again after it has reconnected (autoResendUnfulfilledCommands)"
PAUSES = "BullMQ lets ioredis pause for min(e^n, 20000) ms, at least 1 s, before attempt n to reconnect"

REFUSING = (
    "redis.readonly",
    "redis.misconf",
    "redis.oom",
    "redis.busy",
    "evict.volatile-*",  # nothing that expires is left to evict: OOM
    "replica.promote",  # a primary that has become a replica: READONLY
    "sentinel.failover",
)
"""Faults during which Redis takes MULTI and refuses the scripts inside."""
WITHOUT_SCRIPTS = ("redis.script-flush", "cluster.migrate-slot", "cluster.failover", "cluster.kill-primary")
"""Faults after which a server has no scripts, and ioredis thinks it has. The reference sends such flows again."""
LOSING_REPLIES = (
    "network.outage-all",
    "network.reset",
    "network.truncate",
    "redis.kill-*",
    "redis.away-20s",
    "redis.loading",
    "redis.cut-aof",
    "redis.restore-older-copy",
    "redis.client-kill",
    "redis.maxclients",
    "redis.noauth",
    "docker.*",
    "replica.promote",
    "replica.kill-primary",
    "sentinel.failover",
    "cluster.kill-primary",
    "add*Job after-execute cut",
    "add*Job mid-reply cut",
)
"""Faults and crash points that break the connection of a producer, perhaps between a command and its reply."""

EXPLANATIONS: tuple[Explanation, ...] = (
    *(
        Explanation(
            client="*",
            check="durability",
            where=where,
            message=r"^acknowledged by flow\.add, and gone$",
            reason=UNCHECKED_FLOW,
            row="chaos.flow-refused-unnoticed",
        )
        for where in REFUSING
    ),
    *(
        Explanation(
            client="node",
            check="durability",
            where=where,
            message=r"^acknowledged by flow\.add, and gone$",
            reason=FORGOTTEN_SCRIPTS,
            row="chaos.flow-refused-unnoticed",
        )
        for where in WITHOUT_SCRIPTS
    ),
    *(
        Explanation(
            client="node",
            check="indeterminate",
            where=where,
            message=r"^queue\.add(Bulk)? was answered (ok|info), and there are 2 such jobs$",
            reason=RESENT,
            row="chaos.node-resends",
        )
        for where in LOSING_REPLIES
    ),
    *(
        Explanation(
            client="node",
            check=check,
            where="redis.away-20s",
            message=message,
            reason=PAUSES,
            row="chaos.node-reconnect-pause",
        )
        for check, message in (
            ("progress", r"when redis\.away was healed; work went on after: \d+ ms$"),
            ("timing", r"^promoted \d+ ms after it was due"),
        )
    ),
)


def explanation_of(client: str, check: str, where: str, message: str) -> Explanation | None:
    """The explanation of a finding, if there is one."""
    for one in EXPLANATIONS:
        fits = fnmatchcase(client, one.client) and one.check == check and fnmatchcase(where, one.where)
        if fits and re.search(one.message, message):
            return one
    return None
