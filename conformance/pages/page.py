"""The base of every HTML page: one environment, one base template and one style sheet for all reports."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from conformance.pages.markdown import markdown_code, only_escaped
from conformance.pages.text import clip, count, duration, visible

LONGEST_ON_PAGE = 600
"""Characters of one text on a page; a page of a client that fails everything has thousands of them."""


def html_page(package: str, template: str, **values: Any) -> str:
    """Render a template of a package, which extends `base.html`: self-contained, nothing is loaded from the network.

    Values are escaped by Jinja2. If an escape is ever missing, the content security policy of the page still runs no
    script except those that the template allows.
    """
    return page_environment(package).get_template(template).render(style=asset(__package__, "page.css"), **values)


def markdown_text(package: str, template: str, **values: Any) -> str:
    """Render a Markdown template of a package: texts are escaped as words; the filter `code` makes code of them."""
    environment = page_environment(package).overlay(autoescape=False, finalize=only_escaped)
    return environment.get_template(template).render(**values)


@cache
def page_environment(package: str) -> Environment:
    """Return the environment for the templates of a package: values are escaped, and an unknown name is an error."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.filters["code"] = markdown_code
    environment.filters["duration"] = duration
    environment.filters["number"] = _number
    environment.filters["shortened"] = lambda text: clip(text, LONGEST_ON_PAGE)
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.globals["count"] = count
    return environment


def asset(package: str, name: str) -> str:
    """Read a style sheet or a script from the templates of a package."""
    return files(package).joinpath("templates", name).read_text("utf-8")


def script_hash(script: str) -> str:
    """Return the hash by which a content security policy allows a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _number(value: float) -> str:
    """Write a number with groups of thousands and about three significant digits."""
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
