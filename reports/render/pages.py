"""HTML pages from templates: one file each, with styles and charts inside."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=PackageLoader("reports.render"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _number(value: float) -> str:
    """With thin groups of thousands, and no decimals that say nothing."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.1f}"


_ENVIRONMENT.filters["number"] = _number


def page(template: str, **values: Any) -> str:
    """A page from one of the templates."""
    style = (files("reports.render") / "templates" / "page.css").read_text("utf-8")
    return _ENVIRONMENT.get_template(template).render(style=style, **values)


def text(template: str, **values: Any) -> str:
    """Markdown from one of the templates; nothing is escaped."""
    return _ENVIRONMENT.overlay(autoescape=False).get_template(template).render(**values)
