"""Facts about upstream itself, as the pinned packages show them."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

from conformance.environment.clients import Toolchain, find_toolchain
from conformance.participants.expect import equal, holds
from conformance.participants.participant import Participant
from conformance.proofs.registry import proof

INCLUDE = re.compile(r'^--- @include "([^"]+)"', re.MULTILINE)
WIRE_WORDS = ("stalled-check", "0x100000000", "cmsgpack")
"""A key, the step of a score, and how arguments are packed."""


@cache
def _toolbox() -> Toolchain:
    return find_toolchain("", print)


def _bullmq() -> Path:
    return _toolbox().package.root / "node_modules" / "bullmq"


def _said_by(*command: str) -> str:
    """What a program prints. Raises CalledProcessError where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=_toolbox().package.root)
    return done.stdout.strip()


@proof("script.folder")
def no_folder_of_scripts_that_run(_oracle: Participant) -> str:
    """Look for Lua in the published package, and for what a script calls and does not define."""
    folders = {path.parent.relative_to(_bullmq()).as_posix() for path in _bullmq().rglob("*.lua")}
    holds(not any("scripts" in folder.split("/") for folder in folders), "no folder `scripts` has Lua", seen=folders)
    text = (_bullmq() / "dist/cjs/commands/moveToActive-11.lua").read_text("utf-8")
    missing = [name for name in (path.rpartition("/")[2] for path in INCLUDE.findall(text)) if f"{name}(" in text]
    holds("getTargetQueueList" in missing, "the file calls what its includes define", seen=missing)
    equal("function" in text.replace("Function", ""), False, "the file itself defines no function")
    return (
        f"Lua is in {', '.join(sorted(folders))} only; moveToActive calls {', '.join(missing)} and defines none of them"
    )


@proof("upstream.documentation")
def only_the_scripts_tell(_oracle: Participant) -> str:
    """Look for words of the protocol in what the package documents, and in its scripts."""
    documents = [*_bullmq().rglob("*.d.ts"), *_bullmq().rglob("*.md")]
    scripts = [*(_bullmq() / "dist/cjs/commands").rglob("*.lua")]
    told = {word for word in WIRE_WORDS for path in documents if word in path.read_text("utf-8")}
    known = {word for word in WIRE_WORDS for path in scripts if word in path.read_text("utf-8")}
    equal((told, known), (set(), set(WIRE_WORDS)), "no document has these words, and the scripts have them all")
    readme = (_bullmq() / "README.md").read_text("utf-8")
    holds("https://docs.bullmq.io" in readme, "the documents point to the site")
    return f"none of {len(documents)} documents of the package says {', '.join(WIRE_WORDS)}; the scripts do"


@proof("upstream.other-clients")
def the_same_makers_have_a_python_client(oracle: Participant) -> str:
    """Ask the pinned package from PyPI who made it, and compare with the one from npm."""
    python = _toolbox().launch("python-official").command[0]
    ask = "import importlib.metadata as m; d = m.metadata('bullmq'); print(d['Version'], d['Author-email'], sep='|')"
    version, author = _said_by(python, "-c", ask).split("|")
    npm = json.loads((_bullmq() / "package.json").read_bytes())["author"]
    holds(npm in author, "both packages have one maker", seen=(npm, author))
    holds(oracle.queue().add("job"), "the one from npm works here")
    return f"bullmq {version} on PyPI is by {author}, as bullmq on npm is by {npm}"


@proof("upstream.redis-version")
def five_is_enough(oracle: Participant) -> str:
    """Ask Node's class for the versions of Redis that it refuses and warns of."""
    script = "const c = require('bullmq').RedisConnection; console.log(c.minimumVersion, c.recommendedMinimumVersion)"
    refused, advised = _said_by(str(_toolbox().node.path), "-e", script).split()
    equal((refused, advised), ("5.0.0", "6.2.0"), "these are the limits")
    holds(oracle.queue().add("job"), "this Redis is new enough")
    return f"it refuses Redis below {refused} and warns below {advised}"
