"""The official scripts, as the published package has them, and the slots of keys."""

from __future__ import annotations

from binascii import crc_hqx

from conformance.participants.expect import equal
from conformance.participants.participant import Participant
from conformance.proofs.registry import Prove, proof
from conformance.upstream.manifest import load_manifest

SLOTS = 16384

KEYS_BY_ROW = {
    "script.move-to-active": {"moveToActive": 11},
    "script.move-to-finished": {"moveToFinished": 14},
    "script.retry-job": {"retryJob": 11, "moveToDelayed": 8},
    "script.move-stalled": {"moveStalledJobsToWait": 8},
    "script.extend-lock": {"extendLock": 2, "extendLocks": 1},
    "script.update-progress": {"updateProgress": 3},
    "script.add-log": {"addLog": 2},
}
"""Scripts of each row and their numbers of keys in the published package."""


def _numbers_of_keys(expected: dict[str, int]) -> Prove:
    def steps(_oracle: Participant) -> str:
        scripts = load_manifest().scripts
        found = {name: scripts[name].keys for name in expected}
        equal(found, expected, "the published scripts take these numbers of keys")
        return " and ".join(f"{name} takes {keys} keys" for name, keys in found.items())

    steps.__doc__ = "Read the numbers of keys from the manifest of the pinned package."
    return steps


for _row, _expected in KEYS_BY_ROW.items():
    proof(_row)(_numbers_of_keys(_expected))


@proof("script.names")
def names_of_the_scripts(_oracle: Participant) -> str:
    """Look for the eight scripts that the paper names in the manifest of the pinned package."""
    scripts = load_manifest().scripts
    named = ("moveToActive", "moveToCompleted", "moveToFailed", "retryJob", "moveStalledJobsToWait", "extendLock")
    unknown = [name for name in (*named, "updateProgress", "addLog") if name not in scripts]
    equal((len(scripts), unknown), (49, ["moveToCompleted", "moveToFailed"]), "two of eight do not exist")
    return f"there are {len(scripts)} scripts, and none is called {' or '.join(unknown)}"


def slot(key: str) -> int:
    """The cluster slot of a key: CRC16 of what is between the first braces, or of all of it."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    hashed = tag if brace and closing and tag else key
    return crc_hqx(hashed.encode(), 0) % SLOTS


@proof("cluster.slot-number")
def the_slot_of_a_tag(_oracle: Participant) -> str:
    """Compute the slots of two keys with braces."""
    slots = [slot(f"bull:{{myqueue}}:{name}") for name in ("wait", "active")]
    equal(slots, [9917, 9917], "both are in slot 9917")
    return f"they are in slot {slots[0]}"


@proof("cluster.untagged-spreads")
def slots_without_braces(oracle: Participant) -> str:
    """Compute the slots of the keys that Node uses for a queue with a plain name."""
    oracle.queue("q").add("work")
    there = [name for name in ("wait", "meta", "events", "id", "marker") if oracle.redis("q").exists(name)]
    equal(len(there), 5, "Node uses these keys")
    slots = {name: slot(f"bull:q:{name}") for name in there}
    equal(len(set(slots.values())) > 1, True, "they are in several slots")
    return "the keys of bull:q are in the slots " + ", ".join(f"{number} ({name})" for name, number in slots.items())
