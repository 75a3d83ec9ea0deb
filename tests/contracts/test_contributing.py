"""What CONTRIBUTING.md and docs/walk.md say about the code is counted and looked up here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from hdpvfl_mq.methods import PLANS
from parties.rounds import ROUNDS
from schemas.methods import Method

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PRODUCT = ("schemas", "hdpvfl_mq", "parties", "broker")
ROW = re.compile(r"^\| (an? [\w ]+) \| `(\w+)` \| (\d+) \| (\d+) \| (.*) \|$", re.MULTILINE)
# The names of each example: identifiers, and strings that are such a name and nothing else.
NAMES = {
    "a loss": r"squared_hinge|SquaredHinge",
    "a penalty": r"elastic_net|ElasticNet",
    "a method": r"\w*[dD]escent\w*",
    "a message": r"Welcome|welcome",
    "a command": r"replay",
    "a PSI method": r"ecdh|Dh[A-Z]\w+",
}
LARGEST = r"\w*private_model\w*|\w*PrivateModel\w*|PrivateActive|PrivatePassive"
PACKAGES = ("hdpvfl_mq/methods/descent", "hdpvfl_mq/methods/private_model")


def rows() -> dict[str, tuple[int, set[str]]]:
    return {
        kind: (int(after), set(re.findall(r"`([^`]+)`", files)))
        for kind, _, _, after, files in ROW.findall(PAGE)
    }


def not_counted() -> set[str]:
    """The files that CONTRIBUTING.md says a new method can do without."""
    note = PAGE[PAGE.index("A new method can do without") : PAGE.index("### A loss")]
    return set(re.findall(r"`([\w/]+\.py)`", note))


@cache
def words(path: Path) -> set[str]:
    """Every identifier and string constant of a module; no comment, no docstring."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.Constant(value=str(word)):
                found.add(word)
            case ast.ClassDef(name=word) | ast.FunctionDef(name=word):
                found.add(word)
            case ast.ImportFrom(module=str(module)):
                found |= {*module.split("."), *(alias.name for alias in node.names)}
    return found


def product() -> Iterator[Path]:
    for package in PRODUCT:
        yield from (ROOT / package).rglob("*.py")


def places(pattern: str) -> set[str]:
    """Where code names an example; a package is one place."""
    files = {
        path.relative_to(ROOT).as_posix()
        for path in product()
        if any(re.fullmatch(pattern, word) for word in words(path))
    }
    return {next((p for p in PACKAGES if file.startswith(p)), file) for file in files}


def test_the_table_has_a_row_for_everything_that_is_added():
    assert set(rows()) == set(NAMES)


@pytest.mark.parametrize("kind", NAMES)
def test_an_addition_touches_the_places_the_table_names(kind):
    after, files = rows()[kind]
    spared = not_counted() if kind == "a method" else set()
    assert places(NAMES[kind]) == files | spared
    assert not files & spared
    assert after == len(files)


def test_the_largest_method_is_named_in_as_many_places_as_stated():
    stated = re.search(r"`private_model`, is named in (\d+) places", PAGE)
    assert stated is not None
    assert len(places(LARGEST)) == int(stated[1])


def test_a_method_is_a_variant_a_package_a_module_and_two_lines():
    variants = set(get_args(get_args(Method)[0]))
    assert set(PLANS) == set(ROUNDS) == variants
    for variant in variants:
        kind = variant.model_fields["kind"].default
        assert (ROOT / "hdpvfl_mq" / "methods" / kind / "__init__.py").exists()
        assert (ROOT / "parties" / "rounds" / f"{kind}.py").exists()


def test_no_file_asks_which_method_by_its_name():
    """A method is a value: what differs is looked up in a table or is a field of the value."""
    asks = re.compile(r"method(\.kind)? =[=]|getattr[(]message")
    assert [path for path in product() if asks.search(path.read_text())] == []


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
