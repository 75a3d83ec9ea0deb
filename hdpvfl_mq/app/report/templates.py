"""The templates of the reports, filled in with every value escaped."""

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
    """A template of this folder; what it returns is not escaped again inside another."""
    return Markup(_environment().get_template(template).render(**values))  # noqa: S704 - escaped
