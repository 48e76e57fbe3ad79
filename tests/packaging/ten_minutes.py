"""`python -m tests.packaging.ten_minutes [node] [rust] [go]`: follow the pages of a first gate in a bare container.

They are docs/tutorial/first-gate*.md and the section about Go in docs/how-to/ci.md. The blocks are run by one shell,
word for word and in the order of the page, and its files are put where their first line says. The kit is installed
from a clone of the last commit. It ends with the seconds of each step. Needed: Docker, debootstrap for the first time,
and for `rust` and `go` their toolchain on this machine, which the container borrows.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from tests.docs.blocks import CodeBlock, blocks_of

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorial"
PAGES = {
    "node": TUTORIALS / "first-gate.md",
    "rust": TUTORIALS / "first-gate-rust.md",
    "go": ROOT / "docs" / "how-to" / "ci.md",
}
"""The page for each client."""
SECTIONS = {"go": "A client in Go"}
"""The section for a client whose page has others as well."""
MOST_S = 600.0

BARE = "git,python3,python3-venv,ca-certificates"
TOOLCHAINS = {"node": "nodejs npm", "rust": "gcc libc6-dev", "go": ""}
"""Debian packages in addition to BARE; apt installs them, as debootstrap cannot resolve what npm needs.
Debian 12 has no recent cargo and Go, so those of this machine are used."""
LENT = {"rust": ["rustc", "--print", "sysroot"], "go": ["go", "env", "GOROOT"]}
"""The commands that print the folder of a toolchain of this machine, which has a folder `bin`."""
INSTALL = "apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OF_THE_NETWORK = (
    *("PIP_CERT", "PIP_INDEX_URL", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "CARGO_HTTP_CAINFO"),
    *("http_proxy", "https_proxy", "no_proxy", "npm_config_registry"),
)
"""Variables that say how this machine reaches the registries: the container has them too."""

OF_A_CLONE = re.compile(r"^KIT=\S+$")
"""The one block that is not taken word for word: it holds the address of the reader's copy of the kit."""
FILE = re.compile(r"\A# (?P<path>\S+/\S+)\n")
BEGINS = "\x1e"
"""Prefix of a line of the shell that names the step that starts."""
LAST = "what the reader has"
PRODUCED = "test -s report/report.html && test -s .github/workflows/bullmq.yml"


class StepFailed(Exception):
    """A step of the page that did not end well, and where it stands."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The work of a reader for one block. `commands`: how many of them a reader types or pastes."""

    place: str
    script: str
    commands: int


@dataclass(frozen=True, kw_only=True)
class Done:
    """A step, and how long it took, in seconds."""

    step: Step
    seconds: float


def steps_of(page: Path, kit: str = "", section: str = "") -> list[Step]:
    """Every step of a page, or of one of its sections. `kit` replaces the address in its first block.

    Raises ValueError if no block says where the kit is.
    """
    blocks = [block for block in blocks_of(page) if not section or section in block.section]
    blocks = [block for block in blocks if block.is_commands or FILE.match(block.text)]
    if not any(OF_A_CLONE.match(block.text) for block in blocks):
        raise ValueError(f"{page} does not say where the kit is (KIT=...)")
    return [_step(block, kit) for block in blocks]


def _step(block: CodeBlock, kit: str) -> Step:
    if OF_A_CLONE.match(block.text):
        return Step(place=block.place, script=f"KIT={shlex.quote(kit)}\n", commands=1)
    if block.is_commands:
        return Step(place=block.place, script=block.text, commands=commands_in(block.text))
    path = FILE.match(block.text)["path"]  # type: ignore[index]  # asked before
    written = (
        f"mkdir -p {shlex.quote(str(Path(path).parent))}\nprintf %s {shlex.quote(block.text)} > {shlex.quote(path)}\n"
    )
    return Step(place=block.place, script=written, commands=1)


def commands_in(text: str) -> int:
    """How many commands there are: what is continued, or given as a here-document, is part of its command."""
    count, ends_with = 0, ""
    for line in text.replace("\\\n", " ").splitlines():
        if ends_with:
            ends_with = "" if line == ends_with else ends_with
        elif line.strip() and not line.startswith("#"):
            count += 1
            here = re.search(r"<<'(\w+)'", line)
            ends_with = here[1] if here else ""
    return count


def follow(steps: Sequence[Step], shell: Sequence[str]) -> list[Done]:
    """Do the steps in one shell, which is started by the words of `shell` and one more, and pass on what it prints.

    Raises StepFailed with the place of the first that does not end well.
    """
    script = "".join(f"printf '{BEGINS}%s\\n' {number}\n{step.script}" for number, step in enumerate(steps))
    done: list[Done] = []
    started, at = time.monotonic(), -1
    process = subprocess.Popen(
        [*shell, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        assert process.stdout
        for line in process.stdout:
            before, mark, number = line.partition(BEGINS)
            sys.stdout.write(before)
            if not mark:
                continue
            now = time.monotonic()
            if at >= 0:
                done.append(Done(step=steps[at], seconds=now - started))
            started, at = now, int(number)
    if process.returncode:
        place = steps[at].place if at >= 0 else "the shell"
        raise StepFailed(f"{place} ended with {process.returncode}")
    return [*done, Done(step=steps[at], seconds=time.monotonic() - started)]


def table_of(done: Sequence[Done]) -> str:
    """For people: each step, and the sum."""
    lines = [f"{step.step.place:>12} {step.step.commands:>3} commands {step.seconds:7.1f} s" for step in done]
    commands, seconds = sum(step.step.commands for step in done), sum(step.seconds for step in done)
    return "\n".join([*lines, f"{'all':>12} {commands:>3} commands {seconds:7.1f} s"])


def image_for(client: str) -> str:
    """The bare image with the toolchain of a client; it is built from Debian packages if it is not there."""
    image = f"bullmq-conformance/bare-{client}"
    if not TOOLCHAINS[client]:
        return bare_image()
    if not _is_there(image):
        lines = [f"FROM {bare_image()}", f"RUN {INSTALL} {TOOLCHAINS[client]}"]
        words = ["docker", "build", "--quiet", "--network=host", "--tag", image, "-"]
        subprocess.run(words, input="\n".join(lines), text=True, check=True)
    return image


def bare_image() -> str:
    """An image with git and Python, and nothing else that Debian does not have everywhere."""
    image = "bullmq-conformance/bare"
    if not _is_there(image):
        build = ROOT / "chaos" / "images" / "build-base.sh"
        mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
        subprocess.run([build, image, "bookworm", mirror, BARE], check=True)
    return image


def _is_there(image: str) -> bool:
    return not subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode


@contextmanager
def container(client: str, clone: Path) -> Iterator[list[str]]:
    """A new container, in the network of this machine; yields the words that start its shell in an empty folder."""
    lent = [f"{clone}:/kit.git:ro", f"{BUNDLE}:{BUNDLE}:ro"]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    if client in LENT:
        toolchain = subprocess.run(LENT[client], capture_output=True, text=True, check=True).stdout
        lent.append(f"{toolchain.strip()}:/usr/local/{client}:ro")
        path = f"/usr/local/{client}/bin:{path}"
    variables = [f"PATH={path}", "HOME=/root", *(name for name in OF_THE_NETWORK if name in os.environ)]
    options = [
        *(word for volume in lent for word in ("--volume", volume)),
        *(word for variable in variables for word in ("--env", variable)),
    ]
    start = [
        "docker",
        "run",
        "--detach",
        "--init",
        "--network=host",
        "--workdir=/my-client",
        *options,
        image_for(client),
    ]
    started = subprocess.run([*start, "sleep", "infinity"], stdout=subprocess.PIPE, text=True, check=True)
    name = started.stdout.strip()
    try:
        yield ["docker", "exec", name, "sh", "-eu", "-c"]
    finally:
        subprocess.run(["docker", "rm", "--force", name], stdout=subprocess.DEVNULL, check=False)


@click.command()
@click.argument("clients", nargs=-1, type=click.Choice([*PAGES]))
def main(clients: Sequence[str]) -> None:
    """Follow the page of each client. Fails if a step fails or the page takes more than ten minutes."""
    slow: list[str] = []
    tables: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "kit.git")
        subprocess.run(["git", "clone", "--quiet", "--bare", ROOT, clone], check=True)
        head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        pinned = f"git+file:///kit.git@{head.stdout.strip()}"
        for client in clients or PAGES:
            # Git clones the branch that is checked out here; pip is given its last commit.
            kit = "file:///kit.git" if client in SECTIONS else pinned
            steps = steps_of(PAGES[client], kit, SECTIONS.get(client, ""))
            steps.append(Step(place=LAST, script=PRODUCED, commands=0))
            with container(client, clone) as shell:
                try:
                    done = follow(steps, shell)
                except StepFailed as problem:
                    sys.exit(f"{client}: {problem}")
            tables.append(f"{client}\n{table_of(done)}")
            if sum(step.seconds for step in done) > MOST_S:
                slow.append(client)
    click.echo("\n\n".join(tables))
    if slow:
        sys.exit(f"longer than {MOST_S / 60:.0f} minutes: {', '.join(slow)}")


if __name__ == "__main__":
    main()
