"""What CONTRIBUTING.md and docs/walk.md say about the code is counted and looked up here."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import get_args

import pytest

from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.glm.penalties import PENALTIES
from hdpvfl_mq.methods import PLANS
from hdpvfl_mq.node.mailbox import Mailbox
from parties import passive
from parties.rounds import ROUNDS
from schemas.config import AlignmentMethod
from schemas.messages import Message
from schemas.methods import Method
from tests.federation import Federation, manifest, tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PRODUCT = ("schemas", "hdpvfl_mq", "parties", "broker")
ROW = re.compile(
    r"^\| (an? [\w ]+) \| `(\w+)` \| (\d+) \| (\d+) \| ([^|]*) \| (.*) \|$", re.MULTILINE
)
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
# Everything of a kind by its name and its class; names of commands are ordinary words.
EVERY: dict[str, dict[str, str]] = {
    "a loss": {name: f"{name}|{loss.__name__}" for name, loss in FAMILIES.items()},
    "a penalty": {name: f"{name}|{penalty.__name__}" for name, penalty in PENALTIES.items()},
    "a method": {
        each.model_fields["kind"].default: f"{each.model_fields['kind'].default}|{each.__name__}"
        for each in get_args(get_args(Method)[0])
    },
    "a message": {
        each.model_fields["kind"].default: f"{each.model_fields['kind'].default}|{each.__name__}"
        for each in get_args(Message)
    },
    "a PSI method": {"ecdh": NAMES["a PSI method"], "oprf": r"oprf|Ot[A-Z]\w+"},
}
NODE, ACTIVE = "hdpvfl_mq/node/node.py", "parties/active.py"
PACKAGES = ("hdpvfl_mq/methods/descent", "hdpvfl_mq/methods/private_model")


def rows() -> dict[str, tuple[int, set[str]]]:
    return {
        kind: (int(after), set(re.findall(r"`([^`]+)`", files)))
        for kind, _, _, after, _, files in ROW.findall(PAGE)
    }


def not_counted() -> set[str]:
    """The files that CONTRIBUTING.md says a new method can do without."""
    note = PAGE[PAGE.index("A new method can do without") : PAGE.index("### A loss")]
    return set(re.findall(r"`([\w/]+\.py)`", note))


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


@cache
def naming() -> dict[str, set[str]]:
    """The product files of every word."""
    found: dict[str, set[str]] = {}
    for path in product():
        file = path.relative_to(ROOT).as_posix()
        for word in words(path):
            found.setdefault(word, set()).add(file)
    return found


def places(pattern: str) -> set[str]:
    """Where code names an example; a package is one place."""
    names = re.compile(pattern)
    files = set().union(*(held for word, held in naming().items() if names.fullmatch(word)))
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


def test_the_table_gives_the_range_over_everything_of_a_kind():
    assert set(get_args(AlignmentMethod)) == set(EVERY["a PSI method"])
    for kind, _, _, _, stated, _ in ROW.findall(PAGE):
        if kind not in EVERY:
            assert stated == "not counted"
            continue
        counts = {name: len(places(pattern)) for name, pattern in EVERY[kind].items()}
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        assert stated == f"{counts[least]} (`{least}`) to {counts[most]} (`{most}`)", kind


def test_the_largest_method_is_named_in_as_many_places_as_stated():
    stated = re.search(r"`private_model`, is named in (\d+) places \((\d+) by its name", PAGE)
    assert stated is not None
    assert len(places(LARGEST)) == int(stated[1])
    assert len(places(EVERY["a method"]["private_model"])) == int(stated[2])


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
PASSED = re.findall(r"^\| ([\w ]+) \| `([\w/.]+)` \| `(\w+)` \|", WALK, re.MULTILINE)
STEPS = [step for step in PASSED if " " not in step[0]]


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_four_files_are_numbered_between_the_socket_and_the_mathematics():
    assert [name for name, _, _ in STEPS] == ["socket", "1", "2", "3", "4", "mathematics"]


def calls_of(patch: pytest.MonkeyPatch, where: object, name: str) -> list[list[tuple[str, str]]]:
    """Record from now on who calls a function: file and function of every caller in the project.

    Callers above the node are left out: in a simulation these replace the socket and the loop.
    """
    called, found = getattr(where, name), []

    @wraps(called)
    def recording(*args, **kwargs):
        frames = traceback.extract_stack()[:-1]
        inside = [f for f in frames if Path(f.filename).is_relative_to(ROOT)]
        callers = [(Path(f.filename).relative_to(ROOT).as_posix(), f.name) for f in inside]
        # Without other functions that are recorded.
        callers = [each for each in callers if each[0].startswith(PRODUCT)]
        first = next(at for at, (file, _) in enumerate(callers) if file == NODE)
        found.append([*callers[first:], (in_project(called), name)])
        return called(*args, **kwargs)

    patch.setattr(where, name, recording)
    return found


def in_project(function: FunctionType) -> str:
    return Path(function.__code__.co_filename).relative_to(ROOT).as_posix()


def test_a_residual_passes_the_files_that_the_walk_names(monkeypatch):
    recorded = [
        calls_of(monkeypatch, Mailbox, "accept"),
        calls_of(monkeypatch, passive, "receive_planned"),
        calls_of(monkeypatch, ColumnBlock, "gradient"),
    ]
    Federation(manifest(epochs=1, batch_rows=200), tables(44)).simulate()
    handled = [[c for c in calls if ACTIVE not in dict(c)] for calls in recorded]
    passed = {call for calls in handled for stack in calls for call in stack}
    named = {(file, function) for _, file, function in PASSED[2:]}
    assert all(handled)
    assert named <= passed
    assert {file for file, _ in passed} == {file for file, _ in named}
    # The numbered files and the dispatch, in the order in which each calls the next.
    for stack in handled[-1]:
        files = list(dict.fromkeys(file for file, _ in stack))
        assert files == [NODE, *shared("after 2"), *(file for _, file, _ in STEPS[3:])]


def shared(place: str) -> list[str]:
    """The shared files that the walk names at a place."""
    return [file for name, file, _ in PASSED if name == place]


@pytest.mark.parametrize(
    ("file", "function"),
    [
        *((file, function) for _, file, function in PASSED),
        *((file, function) for function, file in re.findall(r"`(\w+)`\s+in\s+`([\w/.]+)`", WALK)),
    ],
)
def test_the_walk_names_functions_that_exist(file, function):
    assert function in functions(ROOT / file), f"docs/walk.md: {file} has no {function}"
