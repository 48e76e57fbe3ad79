"""Brings all that the site shows into one folder, from which mkdocs builds it.

python -m website.assembly FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

from conformance.gate.proof import all_proofs
from conformance.gate.selection import all_scenarios
from conformance.ledger.loader import load_ledger
from conformance.ledger.operations import load_operations
from conformance.ledger.profiles import load_profiles
from conformance.mutants.registry import MUTANTS
from conformance.problems import Problem
from conformance.report.versions import read_version_record, render_version_page
from website.api_page import api_page
from website.links import COPIES, TreeLinks
from website.requirement_pages import RequirementSources, generated_pages
from website.sample_report import write_report
from website.samples import write_pages
from website.site_map import ROOT, page_path, plain_files, tree_pages, version_records

LOOKS = ("style.css", "keyboard.js")


def assemble(folder: Path) -> None:
    """Write every page and every file of the site into a folder, which is emptied first. Raises BrokenLink."""
    sources = known_sources()
    links = TreeLinks(ROOT, sources.ledger)
    pages = {**pages_of_tree(links), **generated_pages(sources), "api.md": api_page()}
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in pages.items():
        _written(folder / path).write_text(text, "utf-8")
    write_pages(folder)
    write_report(folder)
    files = {path: path.removeprefix("docs/") for path in plain_files(ROOT)}
    files |= {path: f"{COPIES}/{path}" for path in sorted(links.files)}
    for path, place in files.items():
        shutil.copyfile(ROOT / path, _written(folder / place))
    with tarfile.open(ROOT / "vectors" / "calls.tar.gz") as calls:
        calls.extractall(folder / COPIES / "vectors", filter="data")
    for name in LOOKS:
        shutil.copyfile(Path(__file__).parent / name, _written(folder / name))


def known_sources() -> RequirementSources:
    """All that the kit knows about its requirements."""
    return RequirementSources(
        ledger=load_ledger(),
        profiles=load_profiles(),
        operations=load_operations(),
        scenarios=dict(all_scenarios()),
        mutants=tuple(MUTANTS.values()),
        vectors=_recorded_calls(),
        proven=frozenset(all_proofs()),
    )


def _recorded_calls() -> dict[str, int]:
    files = json.loads((ROOT / "vectors" / "manifest.json").read_text("utf-8"))["files"]
    return {Path(name).stem: file["vectors"] for name, file in files.items() if name.startswith("calls/")}


def pages_of_tree(links: TreeLinks) -> dict[str, str]:
    """The pages of README and docs, and of the records in docs, by their place on the site."""
    texts = {path: (ROOT / path).read_text("utf-8") for path in tree_pages(ROOT)}
    texts |= {path: render_version_page(read_version_record(ROOT / path)) for path in version_records(ROOT)}
    return {page_path(path): links.rewrite(text, path, page_path(path)) for path, text in texts.items()}


def _written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    """Assemble the site into the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        assemble(Path(sys.argv[1]))
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
