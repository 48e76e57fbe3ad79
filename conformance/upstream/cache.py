"""The user's cache folder: what is installed once and used offline from then on."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

CACHE_VARIABLE = "BULLMQ_CONFORMANCE_CACHE"
"""Environment variable that names another cache folder."""


def cache_root() -> Path:
    """The folder for everything that the kit installs; it need not exist yet."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else user_cache_path("bullmq-conformance")
