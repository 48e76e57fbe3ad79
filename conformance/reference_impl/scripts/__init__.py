"""Every call of an official Lua script that the client makes, as one object per queue or worker."""

from __future__ import annotations

from conformance.reference_impl.scripts.add import AddScripts, ScheduleScripts
from conformance.reference_impl.scripts.manage import JobScripts, QueueScripts, ReadScripts
from conformance.reference_impl.scripts.move import MoveScripts


class Scripts(AddScripts, MoveScripts, QueueScripts, JobScripts, ReadScripts, ScheduleScripts):
    """All script calls of the client.

    The scripts are those of the pinned npm package, run unchanged; nothing of their text is in this tree.
    """
