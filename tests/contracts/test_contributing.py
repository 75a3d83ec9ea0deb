"""What CONTRIBUTING.md and docs/walk.md say about the code is counted and looked up here."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from hdpvfl_mq.methods import PLANS
from parties.rounds import ROUNDS
from schemas.methods import Method

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "hdpvfl_mq", "parties", "broker")
ROW = re.compile(r"^\| (an? [\w ]+) \| `(\w+)` \| (\d+) \| (\d+) \| (.*) \|$", re.MULTILINE)
# How an example is recognised in a file; a command only has a module and a parser.
NAMES = {
    "a loss": r"squared_hinge|SquaredHinge",
    "a penalty": r"elastic_net|ElasticNet",
    "a message": r'\bWelcome\b|"welcome"',
    "a PSI method": r'"ecdh"|\bDh[A-Z]',
}


def rows() -> dict[str, tuple[int, set[str]]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return {
        kind: (int(after), set(re.findall(r"`([^`]+)`", files)))
        for kind, _, _, after, files in ROW.findall(text)
    }


def naming(pattern: str) -> set[str]:
    found = re.compile(pattern)
    return {
        path.relative_to(ROOT).as_posix()
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if found.search(path.read_text())
    }


def test_the_table_has_a_row_for_everything_that_is_added():
    assert set(rows()) == {*NAMES, "a method", "a command"}


@pytest.mark.parametrize("kind", NAMES)
def test_an_addition_touches_the_files_the_table_names(kind):
    after, files = rows()[kind]
    assert naming(NAMES[kind]) == files
    assert after == len(files)


def test_a_method_is_a_variant_a_package_a_module_and_two_lines():
    after, files = rows()["a method"]
    assert after == len(files) <= 5
    assert all((ROOT / file).exists() for file in files)
    variants = set(get_args(get_args(Method)[0]))
    assert set(PLANS) == set(ROUNDS) == variants
    for variant in variants:
        kind = variant.model_fields["kind"].default
        assert (ROOT / "hdpvfl_mq" / "methods" / kind / "__init__.py").exists()
        assert (ROOT / "parties" / "rounds" / f"{kind}.py").exists()


def test_no_file_asks_which_method_by_its_name():
    """A method is a value: what differs is looked up in a table or is a field of the value."""
    assert naming(r"method(\.kind)? =[=]|getattr[(]message") == set()


WALK = (ROOT / "docs" / "walk.md").read_text()
STEPS = re.findall(r"^\| (\w+) \| `([\w/.]+)` \| `(\w+)` \|", WALK, re.MULTILINE)


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_at_most_four_files_lie_between_the_socket_and_the_mathematics():
    assert [name for name, _, _ in STEPS] == ["socket", "1", "2", "3", "4", "mathematics"]


@pytest.mark.parametrize(
    ("file", "function"),
    [
        *((file, function) for _, file, function in STEPS),
        *((file, function) for function, file in re.findall(r"`(\w+)`\s+in\s+`([\w/.]+)`", WALK)),
    ],
)
def test_the_walk_names_functions_that_exist(file, function):
    assert function in functions(ROOT / file), f"docs/walk.md: {file} has no {function}"
