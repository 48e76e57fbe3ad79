"""What Node itself is known to do under faults: explained in a result, and never a rule for another client.

An excuse is for what the kit itself has started by its name, at a version; never for a program that happens to be
called so: a driver that wraps another client is started by the same `node`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

NODE_VERSIONS = "5.*"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who was examined. `named`: whether it is a client that the kit knows by this name and has started itself."""

    client: str
    version: str = ""
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What one version of one client is known to do, and why it is no finding there.

    `client`: its name, as the kit itself starts it; `versions`: a glob over its version. `check`: the invariant;
    `where`: a glob over faults and crash points; `message`: a regular expression found in the finding.
    """

    client: str
    versions: str
    check: str
    where: str
    message: str
    reason: str
    row: str

    def is_about(self, who: Identity) -> bool:
        """Whether this client may use it."""
        return who.named and who.client == self.client and fnmatchcase(who.version, self.versions)


UNCHECKED_FLOW = (
    "FlowProducer.add resolves without looking at the replies inside EXEC: a refused flow seems to be added"
)
FORGOTTEN_SCRIPTS = f"{UNCHECKED_FLOW} (NOSCRIPT: this Redis has forgotten the scripts, or never had them)"
RESENT = "ioredis sends commands whose reply was lost again after it has reconnected (autoResendUnfulfilledCommands)"
PAUSES = "BullMQ lets ioredis pause for min(e^n, 20000) ms, at least 1 s, before attempt n to reconnect"

REFUSING = (
    "redis.readonly",
    "redis.misconf",
    "redis.disk-full",
    "redis.oom",
    "redis.busy",
    "evict.volatile-*",  # nothing that expires is left to evict: OOM
    "replica.promote",  # a primary that has become a replica: READONLY
    "sentinel.failover",
)
"""Faults during which Redis takes MULTI and refuses the scripts inside."""
WITHOUT_SCRIPTS = (
    "redis.script-flush",
    "redis.noperm",  # the EVAL that was to load it was refused: every later flow of this connection is lost
    "cluster.migrate-slot",
    "cluster.failover",
    "cluster.kill-primary",
)
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
            client="node",
            versions=NODE_VERSIONS,
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
            versions=NODE_VERSIONS,
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
            versions=NODE_VERSIONS,
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
            versions=NODE_VERSIONS,
            check=check,
            where="redis.away-20s",
            message=message,
            reason=PAUSES,
            row="chaos.node-reconnect-pause",
        )
        for check, message in (
            ("progress", r"when redis\.away-20s was healed; work went on after: \d+ ms$"),
            ("timing", r"^promoted \d+ ms after it was due"),
        )
    ),
)


def explanation_of(who: Identity, check: str, where: str, message: str) -> Explanation | None:
    """The explanation of a finding, if there is one."""
    for explanation in EXPLANATIONS:
        fits = explanation.is_about(who) and fnmatchcase(where, explanation.where)
        if fits and explanation.check == check and re.search(explanation.message, message):
            return explanation
    return None


def stale_explanations(used: Collection[str], played: Mapping[str, Identity]) -> list[str]:
    """What is excused and did not happen, though every fault in which it is known to was played; one line each.

    `used`: the ledger rows that have explained something. `played`: who was examined, by fault or crash point. By
    chance it may happen once and not the next time; an excuse that is never used any more has to go.
    """
    missing: dict[str, str] = {}
    for row in sorted({explanation.row for explanation in EXPLANATIONS} - set(used)):
        excuses = [explanation for explanation in EXPLANATIONS if explanation.row == row]
        faults = [
            one
            for one in excuses
            if any(one.is_about(who) and fnmatchcase(name, one.where) for name, who in played.items())
        ]
        if len(faults) == len(excuses):
            missing[row] = f"{row}: {excuses[0].client} is excused for it ({excuses[0].reason}), and it did not happen"
    return list(missing.values())
