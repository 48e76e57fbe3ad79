"""Which versions of bullmq npm has, and what words such as `newest-6` stand for today."""

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
    """Whether this is a version of bullmq as npm writes them, or a word for one."""
    return bool(_EXACT.fullmatch(text) or _NEWEST.fullmatch(text))


def exact_version(node: NodeBinary, text: str) -> str:
    """The version that a text names: itself, or the newest that npm has (`newest`, `latest`, `newest-5`).

    npm is asked for words only. Raises UsageProblem for what is neither or of a major version that there is not,
    EnvironmentProblem where npm cannot answer.
    """
    if _EXACT.fullmatch(text):
        return text
    word = _NEWEST.fullmatch(text)
    if word is None:
        raise UsageProblem(f"{text!r} is no version of bullmq", hint=VERSION_HINT)
    found = [version for version in published_versions(node) if word["major"] in (None, version.split(".")[0])]
    if not found:
        raise UsageProblem(f"npm has no bullmq {word['major']}", hint=VERSION_HINT)
    return found[-1]


def published_versions(node: NodeBinary) -> list[str]:
    """Every version of bullmq that npm has, previews left out, oldest first. Raises EnvironmentProblem."""
    answer = npm_output(node, "view", "bullmq", "versions", "--json")
    try:
        versions = msgspec.json.decode(answer, type=list[str])
    except msgspec.DecodeError as error:
        raise EnvironmentProblem(
            f"npm does not say which versions of bullmq there are: {error}", hint="name an exact version"
        ) from error
    return sorted((version for version in versions if "-" not in version), key=Version)
