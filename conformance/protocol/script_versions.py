"""How the scripts of versions other than the pinned one are called, as far as that is different.

Each entry says from which release on a script is called so. Releases were found by comparing the packages of
neighbouring versions, the meaning of new KEYS and ARGV in the scripts' own heads and in `src/classes/scripts.ts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from conformance.protocol.scripts import SCRIPT_SIGNATURES, ScriptSignature, signature
from conformance.protocol.versions import in_range

SLOTS: Final = 9
"""Entries of the first argument of the scripts that add jobs."""


@dataclass(frozen=True)
class ScriptSet:
    """The scripts of one version: how each is called. `slots`: entries of the first argument of those that add jobs."""

    signatures: Mapping[str, ScriptSignature]
    slots: int = SLOTS


@dataclass(frozen=True)
class SignatureChange:
    """From release `since` on, these scripts are called so; those without a signature are gone."""

    since: str
    signatures: Mapping[str, ScriptSignature | None]
    slots: int | None = None


PINNED_SCRIPTS: Final = ScriptSet(SCRIPT_SIGNATURES)
"""Those of the pinned version."""

_MOVE_TO_DELAYED = "base now text text number flag [packed?] [flag] [packed?]"
_FINISHED = "completed|failed"

CHANGES: Final[tuple[SignatureChange, ...]] = (
    SignatureChange("5.65.0", {"removeDeduplicationKey": signature("<any>", "text")}),
    SignatureChange(
        "5.66.0",
        {
            "reprocessJob": signature(
                f"<job> events {_FINISHED} wait meta paused active marker", "text push text text [flag] [flag]"
            )
        },
    ),
    SignatureChange("5.70.2", {"removeOrphanedJobs": signature("<base>", "count", more="text")}),
    SignatureChange(
        "5.73.3",
        {
            "moveToDelayed": signature(
                "marker active prioritized delayed <job> events meta stalled wait limiter paused pc", _MOVE_TO_DELAYED
            )
        },
    ),
    SignatureChange(
        "5.78.1",
        {
            "moveStalledJobsToWait": signature(
                "stalled wait active stalled-check meta paused marker events repeat", "count base now duration"
            )
        },
    ),
    SignatureChange("5.81.1", {"getJobs": signature("<base>", "integer integer flag count", more="text")}),
    SignatureChange(
        "6.0.0",
        {
            "addRepeatableJob": None,
            "removeRepeatable": None,
            "updateRepeatableJobMillis": None,
            "pause": signature("wait|paused wait|paused meta prioritized events delayed marker", "text [flag]"),
        },
    ),
    SignatureChange("6.1.1", {"getCountsPerPriority": signature("wait prioritized", more="number")}),
    SignatureChange(
        "6.3.5",
        {
            "moveToDelayed": signature(
                "marker active prioritized delayed <job> events meta stalled wait limiter pc", _MOVE_TO_DELAYED
            )
        },
    ),
    SignatureChange(
        "6.3.15",
        {
            "reprocessJob": signature(
                f"<job> events {_FINISHED} wait meta active marker prioritized pc", "text push text text [flag] [flag]"
            )
        },
    ),
    SignatureChange(
        "6.5.1",
        {"releaseParentIfNoPendingDependencies": signature("<job> <job>:dependencies", "text text now")},
        slots=10,
    ),
)
"""In the order of the releases."""


@lru_cache
def scripts_of(version: str) -> ScriptSet:
    """How the scripts of a version are called; those of versions before the pinned one as of that."""
    signatures, slots = dict(SCRIPT_SIGNATURES), SLOTS
    for change in CHANGES:
        if in_range(version, f">={change.since}"):
            for name, changed in change.signatures.items():
                if changed is None:
                    signatures.pop(name, None)
                else:
                    signatures[name] = changed
            slots = change.slots or slots
    return ScriptSet(MappingProxyType(signatures), slots)
