"""The versions of bullmq on npm, and the current meaning of words such as `newest-6`."""

from __future__ import annotations

import re

import msgspec
from packaging.version import Version

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream.node import NodeBinary, npm_output

_EXACT = re.compile(r"\d+\.\d+\.\d+(?:-[\w.]+)?")
_NEWEST = re.compile(r"(?:newest|latest)(?:-(?P<major>\d+))?")
VERSION_HINT = "versions are written as in node@5.81.3, or newest, newest-5, newest-6"


def is_version(text: str) -> bool:
    """Whether this is a version of bullmq as npm writes it, or a word for one."""
    return bool(_EXACT.fullmatch(text) or _NEWEST.fullmatch(text))


def exact_version(node: NodeBinary, text: str) -> str:
    """The version that a text names: itself, or the newest that npm has (`newest`, `latest`, `newest-5`).

    Asks npm only for words. Raises UsageProblem for other texts and for an unknown major version, EnvironmentProblem if
    npm fails.
    """
    # Exact versions work offline, once they are installed.
    if _EXACT.fullmatch(text):
        return text
    word = _NEWEST.fullmatch(text)
    if word is None:
        raise UsageProblem(f"invalid version {text!r} of bullmq", hint=VERSION_HINT)
    versions = [version for version in published_versions(node) if word["major"] in (None, version.split(".")[0])]
    if not versions:
        raise UsageProblem(f"npm has no bullmq {word['major']}", hint=VERSION_HINT)
    return versions[-1]


def published_versions(node: NodeBinary) -> list[str]:
    """All versions of bullmq on npm without prereleases, oldest first. Raises EnvironmentProblem."""
    answer = npm_output(node, "view", "bullmq", "versions", "--json")
    try:
        versions = msgspec.json.decode(answer, type=list[str])
    except msgspec.DecodeError as error:
        raise EnvironmentProblem(
            f"npm does not list the versions of bullmq: {error}", hint="give an exact version"
        ) from error
    return sorted((version for version in versions if "-" not in version), key=Version)
