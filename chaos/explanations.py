"""Findings that Node.js BullMQ itself produces under faults: explained in the results, not counted as failures.

An explanation applies only to a client that the kit started by its name, at a known version. A driver that wraps
another client is started by the same `node` program and gets no explanation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

NODE_VERSIONS = "5.*"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The client under test. `named`: the kit knows the client by this name and started it itself."""

    client: str
    version: str = ""
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A finding that is known for some versions of a client, and its reason.

    `client`: the name by which the kit starts it. `versions`: a glob over its version. `check`: the invariant. `where`:
    a glob over faults and crash points. `message`: a regular expression that matches the start of the finding's message
    or a part of it. `row`: the ledger row that documents the behaviour.
    """

    client: str
    versions: str
    check: str
    where: str
    message: str
    reason: str
    row: str

    def applies_to(self, who: Identity, where: str) -> bool:
        """Whether it is about this client under this fault, or at this crash point."""
        is_the_client = who.named and who.client == self.client and fnmatchcase(who.version, self.versions)
        return is_the_client and fnmatchcase(where, self.where)


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


def _of_node(check: str, where: Sequence[str], message: str, *, reason: str, row: str) -> Iterator[Explanation]:
    """One explanation for each fault or crash point."""
    for place in where:
        yield Explanation(
            client="node", versions=NODE_VERSIONS, check=check, where=place, message=message, reason=reason, row=row
        )


_LOST_FLOW = r"^acknowledged by flow\.add, and gone$"
_TWICE = r"^queue\.add(Bulk)? was answered (ok|info), and there are 2 such jobs$"
_LATE_WORK = r"^\d+ jobs were ready when redis\.away-20s was healed; work went on after: \d+ ms$"
_LATE_WORKER = r"^worker-\d+ did not ask for a job of \w+ within \d+ ms after redis\.away-20s was healed"
_LATE_JOB = r"^promoted \d+ ms after it was due"
_LATE_CLOSE = r"^close of worker-\d+ on \w+ did not end within \d+ ms"
_LATE_READER = r"^the reader of [\w-]+ had not reported \d+ entries at the end"
_AWAY = ("redis.away-20s",)
_OF_A_PAUSE = (
    ("progress", _LATE_WORK),
    ("progress", _LATE_WORKER),
    ("timing", _LATE_JOB),
    ("closing", _LATE_CLOSE),
    ("event-readers", _LATE_READER),
)
"""The invariants, each with its finding, that show a client which waits to reconnect."""

EXPLANATIONS: tuple[Explanation, ...] = (
    *_of_node("durability", REFUSING, _LOST_FLOW, reason=UNCHECKED_FLOW, row="chaos.flow-refused-unnoticed"),
    *_of_node("durability", WITHOUT_SCRIPTS, _LOST_FLOW, reason=FORGOTTEN_SCRIPTS, row="chaos.flow-refused-unnoticed"),
    *_of_node("indeterminate", LOSING_REPLIES, _TWICE, reason=RESENT, row="chaos.node-resends"),
    *(
        explanation
        for check, message in _OF_A_PAUSE
        for explanation in _of_node(check, _AWAY, message, reason=PAUSES, row="chaos.node-reconnect-pause")
    ),
)


def explanation_of(who: Identity, check: str, where: str, message: str) -> Explanation | None:
    """The explanation of a finding, if there is one."""
    for explanation in EXPLANATIONS:
        fits = explanation.check == check and explanation.applies_to(who, where)
        if fits and re.search(explanation.message, message):
            return explanation
    return None


def stale_explanations(used: Collection[str], executed: Mapping[str, Identity]) -> list[str]:
    """The ledger rows whose explanations were not needed although each of their faults was injected; one line each.

    `used`: rows that explained a finding. `executed`: the client under test, by fault or crash point. A race may
    produce a finding once and not the next time; an explanation that is never used any more should be deleted.
    """
    unused: dict[str, Explanation] = {}
    for row in sorted({explanation.row for explanation in EXPLANATIONS} - set(used)):
        explanations = [explanation for explanation in EXPLANATIONS if explanation.row == row]
        if all(_was_tried(explanation, executed) for explanation in explanations):
            unused[row] = explanations[0]
    return [
        f"{row}: explained for {explanation.client} ({explanation.reason}), but not observed"
        for row, explanation in unused.items()
    ]


def _was_tried(explanation: Explanation, executed: Mapping[str, Identity]) -> bool:
    return any(explanation.applies_to(who, where) for where, who in executed.items())
