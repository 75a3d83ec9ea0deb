"""A line that silences a tool says why: no bare `noqa`, `type: ignore`, `pragma`, skip or xfail."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("schemas", "hdpvfl_mq", "parties", "broker", "scripts", "tests")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
WORDS = re.compile(r"#\s*(?:ruff:\s*)?(?:type: ignore|noqa|pragma: no)\b")
WITH_REASON = re.compile(
    r"#\s*(?:ruff:\s*)?(?:type: ignore\[[a-z, -]+\]|noqa: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*"
    r"|pragma: no (?:cover|branch))\s*(?:-|#|\s)\s*\w"
)
SKIPS = re.compile(r"\b(?:skip|skipif|xfail)\b")


def bare(text: str) -> list[int]:
    """Lines that silence a tool without a word on why."""
    return [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if WORDS.search(line) and not WITH_REASON.search(line)
    ]


def skipped(tree: ast.AST) -> list[int]:
    """Calls and marks that leave a test out and give no reason."""
    told, nodes = set(), tuple(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = any(word.arg == "reason" for word in node.keywords)
            if named or (node.func.attr in {"skip", "xfail"} and node.args):
                told.add(id(node.func))
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr in {"skip", "skipif", "xfail"}
        and id(node) not in told
    ]


def test_what_is_silenced_says_why() -> None:
    found = {}
    for path in SOURCES:
        text = path.read_text()
        lines = bare(text)
        if SKIPS.search(text):  # only then is its syntax tree worth making
            lines += skipped(ast.parse(text))
        if lines:
            found[str(path.relative_to(ROOT))] = lines
    assert not found, f"give a reason on the line, or mend what is silenced: {found}"


def test_a_skip_without_a_reason_is_noticed() -> None:
    marks = ("pytest.mark.skip", "pytest.skip()", "pytest.mark.skipif(True)", "pytest.mark.xfail")
    assert all(skipped(ast.parse(mark)) for mark in marks)
    told = ('pytest.skip("no ip")', 'pytest.mark.skipif(True, reason="no ip")')
    assert not any(skipped(ast.parse(mark)) for mark in told)


@pytest.mark.parametrize(
    ("line", "is_bare"),
    [
        ("x = 1  # NOQA".lower(), True),
        ("x = 1  # " + "noqa: S101", True),
        ("x = 1  # " + "noqa: S101 - a reason", False),
        ("x = 1  # " + "type: ignore", True),
        ("x = 1  # " + "type: ignore[misc]", True),
        ("x = 1  # " + "type: ignore[misc]  # a reason", False),
        ("x = 1  # " + "pragma: no cover", True),
    ],
)
def test_the_rule_notices(line: str, is_bare: bool) -> None:
    assert bool(bare(line)) == is_bare
