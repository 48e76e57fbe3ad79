"""Every call of an official Lua script that the client makes, as one object per queue or worker.

The scripts are those of the pinned npm package, run unchanged; nothing of their text is in this tree.
"""

from __future__ import annotations

from conformance.reference_impl.scripts.add import AddScripts, NewJob
from conformance.reference_impl.scripts.manage import JobScripts, QueueScripts
from conformance.reference_impl.scripts.move import NO_TOKEN, Fetched, Finish, MoveScripts
from conformance.reference_impl.scripts.read import ReadScripts
from conformance.reference_impl.scripts.schedule import ScheduleScripts


class Scripts(AddScripts, MoveScripts, QueueScripts, JobScripts, ReadScripts, ScheduleScripts):
    """All script calls of the client."""


__all__ = ["NO_TOKEN", "Fetched", "Finish", "NewJob", "Scripts"]
