"""Keeps passwords out of what is written down: a run file is evidence that people pass on."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
"""Stands where a password was."""

_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^:@/?#]*:).*@", re.DOTALL | re.IGNORECASE)
"""User and password of a URL, up to the last `@`: one that was not percent-encoded may hold any character."""


def redacted(words: Sequence[str]) -> list[str]:
    """The words of a command line without the passwords of URLs, also in words like `--redis=redis://…`."""
    return [without_password(word) for word in words]


def without_password(text: str) -> str:
    """A text that is, or ends with, a URL: the same without its password."""
    return _PASSWORD.sub(rf"\g<before>{HIDDEN}@", text)
