"""What the syntax tree must not show: ways out besides the mechanism, ways round validation.

Which module may import which is held by import-linter (`make check`); here are the rules it cannot
say. Each rule is shown to notice what it forbids.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "hdpvfl_mq", "parties", "broker")

# The numbers before noise: arithmetic on a party's own rows, the mechanism, the party's own loss,
# and the local demo's evaluation, which holds all data.
MAY_EXPOSE = {
    "hdpvfl_mq/glm/block.py",
    "hdpvfl_mq/methods/score_regression.py",
    "hdpvfl_mq/glm/response.py",
    "hdpvfl_mq/glm/solver.py",
    "hdpvfl_mq/privacy/mechanism.py",
    "hdpvfl_mq/app/demo/evaluate.py",
    "parties/rounds/descent.py",
    "hdpvfl_mq/methods/private_model/problem.py",
    "parties/rounds/prediction.py",
}
# Where people are spoken to.
MAY_PRINT = ("hdpvfl_mq/app/", "hdpvfl_mq/runtime/process.py", "hdpvfl_mq/runtime/logs.py")
# The shells of the two processes; everything else in their rooms is pure.
SHELLS = {
    "parties.__main__",
    "parties.process.**",
    "broker.__main__",
    "broker.process.**",
}


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, node
            elif isinstance(node.func, ast.Name):
                yield node.func.id, node


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file; every rule reads the same ones."""
    return ast.parse(path.read_text())


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def attributes(tree: ast.AST) -> set[str]:
    return {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}


def exposes(tree: ast.AST) -> bool:
    return "expose" in attributes(tree) or any(
        isinstance(node, ast.Constant) and node.value in ("expose", "_Unreleased__values")
        for node in nodes(tree)
    )


def skips_validation(tree: ast.AST) -> bool:
    if "model_construct" in attributes(tree) or "__pydantic_validator__" in attributes(tree):
        return True
    copies = (node for called, node in calls(tree) if called in ("model_copy", "copy"))
    if any(keyword.arg == "update" for node in copies for keyword in node.keywords):
        return True
    # object.__setattr__ writes to frozen models and dataclasses alike.
    return any(
        called == "__setattr__" and isinstance(node.func, ast.Attribute)
        for called, node in calls(tree)
    )


def speaks(tree: ast.AST) -> bool:
    if any(called in ("print", "getLogger") for called, _ in calls(tree)):
        return True
    imported = {alias.name for n in nodes(tree) if isinstance(n, ast.Import) for alias in n.names}
    return "logging" in imported or bool({"stdout", "stderr"} & attributes(tree))


def is_dangerous(tree: ast.AST) -> bool:
    imported = {alias.name for n in nodes(tree) if isinstance(n, ast.Import) for alias in n.names}
    imported |= {n.module for n in nodes(tree) if isinstance(n, ast.ImportFrom) and n.module}
    if {part.split(".")[0] for part in imported} & {"pickle", "shelve", "marshal", "dill", "yaml"}:
        return True
    for called, node in calls(tree):
        if called in ("eval", "exec", "__import__") and isinstance(node.func, ast.Name):
            return True
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("shell", "allow_pickle") and is_true:
                return True
    return False


def found(rule: Callable[[ast.AST], bool]) -> set[str]:
    return {name(path) for path in sources() if rule(parsed(path))}


def test_only_these_modules_see_numbers_before_noise():
    assert found(exposes) - {"hdpvfl_mq/arrays/unreleased.py"} == MAY_EXPOSE


def test_nobody_goes_round_validation():
    assert found(skips_validation) == set()


def test_pure_parts_say_nothing():
    assert {path for path in found(speaks) if not path.startswith(MAY_PRINT)} == set()


def test_no_code_comes_from_data():
    # A party and its own workers, over a socket pair that nobody else has: multiprocessing's
    # connections would pickle there too.
    assert found(is_dangerous) == {"hdpvfl_mq/engine/channel.py"}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (exposes, "x.expose()"),
        (exposes, "getattr(x, 'expose')()"),
        (exposes, "x._Unreleased__values; getattr(x, '_Unreleased__values')"),
        (exposes, "f = x.expose"),
        (skips_validation, "Release.model_construct(a=1)"),
        (skips_validation, "message.model_copy(update={'round': 1})"),
        (skips_validation, "object.__setattr__(message, 'round', 1)"),
        (speaks, "print(x)"),
        (speaks, "import logging"),
        (speaks, "sys.stderr.write(x)"),
        (is_dangerous, "import pickle"),
        (is_dangerous, "from yaml import load"),
        (is_dangerous, "eval(text)"),
        (is_dangerous, "np.load(p, allow_pickle=True)"),
        (is_dangerous, "run(c, shell=True)"),
    ],
)
def test_each_rule_notices_what_it_forbids(rule, code):
    assert rule(ast.parse(code))


def linter() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def contract(words: str) -> dict:
    return next(c for c in linter()["contracts"] if words in c["name"])


def test_only_the_shells_of_a_process_touch_the_world():
    """Rooms are pure as a whole, so that a new module is too; the exceptions are these shells."""
    pure = contract("Pure packages")
    assert {"parties", "broker"} <= set(pure["source_modules"])
    assert {edge.split(" -> ")[0] for edge in pure["ignore_imports"]} == SHELLS


def test_every_part_of_the_library_has_its_layer():
    layers = {part.strip() for row in contract("one way")["layers"] for part in row.split("|")}
    for path in sorted((ROOT / "hdpvfl_mq").iterdir()):
        is_part = path.suffix == ".py" or (path / "__init__.py").exists()
        if is_part and path.name != "__init__.py":
            assert f"hdpvfl_mq.{path.stem}" in layers, f"give {path.name} a layer in pyproject.toml"


def test_the_forbidden_list_is_complete():
    forbidden = set(contract("Pure packages")["forbidden_modules"])
    wanted = {"zmq", "asyncio", "time", "random", "secrets", "socket", "os", "threading"}
    assert wanted <= forbidden


def test_a_file_opens_with_what_it_owns():
    assert [name(path) for path in sources() if not ast.get_docstring(parsed(path))] == []
