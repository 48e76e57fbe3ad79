"""Documentation and messages are written in plain English; `python -m tests.house.plain_english` exits with 1 if not.

The rules are those of the writing style in CONTRIBUTING.md. These must be free of the listed patterns:

- `docs`: every Markdown file;
- `strings`: in Python comments, docstrings and string literals; of tests not the literals, which are data, but messages
  of assertions and names of tests. Also templates, the sentences of the ledger, known lists, and the messages of the
  Node driver. Names of scenarios are ids, and not checked;
- the subjects of the last 20 commits.

`--count` prints the hits of every pattern by scope, and in all tracked text (`tree`); paths restrict what is read.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PATTERNS = {
    "tell": r"\b(told|tells?)\b",
    "nobody": r"\b(nobody|somebody|anybody|whoever|whatever)\b",
    "what-clause": r"(?:^|[.:;!?]\s+|\|\s)What(?! (?:is|are|does|do|did|was|were|can|should|if) [^.|]*\?) [a-z]",
    "is no": r"(?<!there )(?<!There )\b(?:is|are|was|were) no "
    r"(?!longer\b|more\b|less\b|fewer\b|different\b|such\b)[a-z]",
    "stands in": r"\b(stands?|stood|lies|lay) (in|on|at|beside|for|below|above|there|under|behind)\b",
    "dated word": r"\b(beside|anew|for good|mend(s|ed|ing)?|heed(s|ed|ing)?|begins?|began|begun)\b",
    "play": r"\bplay(s|ed|ing)?\b",
    "where-clause": r"(?:^|[.:;!?]\s+|\|\s)Where(?! (?:is|are|does|do|did|was|were|can|should) [^.|]*\?) [a-z]",
    "so many": r"\bso (many|long)\b",
    "idiom": r"\b(speaks? against|look(s|ed)? at|comes? and goes?|all the same|as ever|one and the same)\b",
    "riddle name": r"\b(?:for|async for) (?:one|each|found|asked|told)\b(?:, \w+)* in\b",
}
"""What is not written, by the rule of the writing style that says so."""

ALLOWED = (
    r"\A[\w-]+\Z",  # a string without a space is a name: a parameter's value, a type of line in histories
    r"\b[a-z]+\.[a-z]+(?:-[a-z]+)*\b",  # names of requirements, mutants, faults
    r"`[\w-]+`",  # a name in code: a field of stored records, a type of line in histories
    r"autoplay",
    r"replay(s|ed|ing|er)?",
)
"""Texts in which a pattern is the right word."""

_PATTERNS = {
    name: re.compile(pattern, 0 if name.endswith("clause") else re.IGNORECASE) for name, pattern in PATTERNS.items()
}
_SUBJECT_PATTERNS = {
    **_PATTERNS,
    "what-clause": re.compile(r"\bwhat\b"),
    "two changes": re.compile(r", and |;"),
    "long subject": re.compile(r".{73}"),
}
_ALLOWED = re.compile("|".join(ALLOWED))
_OURS = Path("tests/house")
_GENERATED = re.compile(r"\.lock$|(^|/)package-lock\.json$|(^|/)Cargo\.lock$|^LICENSE$|^tests/report/golden/")
_TEXT_FILES = frozenset({".html", ".yaml", ".toml", ".tmpl", ".properties"})


@dataclass(frozen=True)
class Hit:
    """One place that does not keep a rule. `line` counts from 1."""

    path: Path
    line: int
    pattern: str
    text: str


def hits_in(text: str, patterns: dict[str, re.Pattern[str]] = _PATTERNS) -> Iterator[tuple[str, int]]:
    """Each pattern that the text matches, with the offset of the match."""
    masked = _ALLOWED.sub(lambda match: "x" * len(match[0]), text)
    for name, pattern in patterns.items():
        for match in pattern.finditer(masked):
            yield name, match.start()


def checked_texts(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """The texts of a file that are checked, each with the line where it starts."""
    if path.suffix == ".md":
        yield from _paragraphs(source)
    elif path.suffix == ".py":
        yield from (_test_texts if path.parts[0] == "tests" else _literals)(ast.parse(source))
        yield from _comments(source)
    elif path.suffix in {*_TEXT_FILES, ".mjs"} and path.parts[0] != "tests":
        yield from ((number, line.strip(" #/*-")) for number, line in enumerate(source.splitlines(), 1))


def _paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """Markdown by lines, without the marks that a line starts with, so that a sentence starts at its first word."""
    for number, line in enumerate(source.splitlines(), 1):
        yield number, re.sub(r"^[\s>|#*-]*(\d+\.\s+)?(\*\*)?", "", line)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def _test_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings, names of tests, and messages of assertions; other strings are data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.removeprefix("test_").replace("_", " ").capitalize()
        text = node.value if isinstance(node, ast.Expr) else node.msg if isinstance(node, ast.Assert) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.lineno, text.value


def _literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def tracked_files(paths: list[str]) -> list[Path]:
    """The files of the tree that are text and ours: not lock files, licences and recorded reports.

    Raises SystemExit if a path is missing or outside of the tree.
    """
    places = [Path(path).resolve() for path in paths]
    for place in places:
        if not place.is_relative_to(ROOT) or not place.exists():
            raise SystemExit(f"invalid path {str(place)!r}: name files or folders below {ROOT}")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *places], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [
        Path(name)
        for name in listed.split("\0")
        if name and not _GENERATED.search(name) and not Path(name).is_relative_to(_OURS) and (ROOT / name).is_file()
    ]


def checked_hits(path: Path, source: str) -> Iterator[Hit]:
    """The hits in the texts of a file that are checked."""
    for start, text in checked_texts(path, source):
        for pattern, offset in hits_in(text):
            line = start + text.count("\n", 0, offset)
            yield Hit(path, line, pattern, text[offset:].split("\n", 1)[0].strip()[:80])


def subject_hits(log: str) -> Iterator[Hit]:
    """The hits in subjects of commits. `log`: one a line, after the name of its commit."""
    for commit, _, subject in (line.partition(" ") for line in log.splitlines()):
        for pattern, _ in hits_in(subject, _SUBJECT_PATTERNS):
            yield Hit(Path(commit), 1, pattern, subject)


def all_hits(path: Path, source: str) -> Iterator[Hit]:
    """The hits in every line of a file: names, comments and docstrings included."""
    for number, line in enumerate(source.splitlines(), 1):
        for pattern, _ in hits_in(re.sub(r"^[\s#>|*\"/-]*", "", line).replace("_", " ")):
            yield Hit(path, number, pattern, line.strip()[:80])


def _count(files: list[Path]) -> None:
    counts: dict[str, Counter[str]] = {"docs": Counter(), "strings": Counter(), "tree": Counter()}
    for path in files:
        source = _source(path)
        counts["docs" if path.suffix == ".md" else "strings"].update(hit.pattern for hit in checked_hits(path, source))
        counts["tree"].update(hit.pattern for hit in all_hits(path, source))
    print(f"{'pattern':14}" + "".join(f"{scope:>9}" for scope in counts))
    for name in PATTERNS:
        print(f"{name:14}" + "".join(f"{count[name]:>9}" for count in counts.values()))
    print(f"{'all':14}" + "".join(f"{count.total():>9}" for count in counts.values()))


def _source(path: Path) -> str:
    try:
        return (ROOT / path).read_text("utf-8")
    except UnicodeDecodeError:  # a recorded binary, such as an RDB file
        return ""


def main() -> int:
    """Print every hit in files and subjects, or with `--count` a table; the exit code is 1 if there is a hit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", action="store_true", help="print a table of the hits by pattern and scope")
    parser.add_argument("--tree", action="store_true", help="print the hits in comments, docstrings and names as well")
    parser.add_argument("paths", nargs="*", help="files or folders; default: everything")
    options = parser.parse_args()
    files = tracked_files(options.paths)
    if options.count:
        _count(files)
        return 0
    read = all_hits if options.tree else checked_hits
    hits = [hit for path in files for hit in read(path, _source(path))]
    if not options.paths:
        log = ["git", "log", "-20", "--no-merges", "--format=%h %s"]
        hits += subject_hits(subprocess.run(log, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    for hit in hits:
        print(f"{hit.path}:{hit.line}: {hit.pattern}: {hit.text}")
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
