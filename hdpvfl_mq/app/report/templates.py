"""Renders the templates of the report and of notebooks; every value is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    loader = PackageLoader("hdpvfl_mq.app.report", package_path="")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )


def rendered(template: str, **values: Any) -> Markup:
    """Render a template of this folder; another template does not escape the result again."""
    return Markup(_environment().get_template(template).render(**values))  # noqa: S704 - escaped
