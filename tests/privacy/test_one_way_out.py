"""Nothing leaves but through the mechanism: the syntax tree is read for it."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from pathlib import Path

import msgpack
import numpy as np
import pytest

from hdpvfl_mq.arrays.unreleased import Unreleased

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "hdpvfl_mq", "parties", "broker", "scripts")
MAKERS = {"model_validate", "model_validate_json", "model_construct", "model_copy", "parse_obj"}
PRIVACY_BANS = {
    "asyncio",
    "os",
    "random",
    "scipy",
    "secrets",
    "socket",
    "threading",
    "time",
    "zmq",
}


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def makes_release(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if name_of(node.func) == "Release":
            return True
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in MAKERS
            and name_of(node.func.value) == "Release"
        ):
            return True
    return False


def test_only_the_mechanism_builds_a_release() -> None:
    makers = [path for path in sources() if makes_release(ast.parse(path.read_text()))]
    assert [path.relative_to(ROOT).as_posix() for path in makers] == [
        "hdpvfl_mq/privacy/mechanism.py",
        "scripts/attacks/voice.py",  # forges them on purpose, to see them refused
    ]


@pytest.mark.parametrize(
    "code",
    [
        "Release(tensor=t)",
        "privacy.Release(tensor=t)",
        "Release.model_construct(tensor=t)",
        "schemas.privacy.Release.model_validate({})",
    ],
)
def test_the_reader_of_the_tree_notices(code: str) -> None:
    assert makes_release(ast.parse(code))


def test_privacy_imports_nothing_that_could_leak_or_depend_on_the_machine() -> None:
    for path in sorted((ROOT / "hdpvfl_mq" / "privacy").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in PRIVACY_BANS, (path.name, name)
                if name.startswith("hdpvfl_mq."):
                    rooms = ("privacy", "errors", "arrays", "durable", "engine.port")  # a pure port
                    allowed = tuple(f"hdpvfl_mq.{n}" for n in rooms)
                    assert name.startswith(allowed), (path.name, name)
                if name in ("sqlite3", "pathlib", "hdpvfl_mq.durable"):
                    assert path.name.startswith(("ledger_", "scored_"))


SECRET = Unreleased(np.array([0.123456789, 2.0]))


@pytest.mark.parametrize(
    "leak",
    [
        pickle.dumps,
        json.dumps,
        msgpack.packb,
        copy.copy,
        copy.deepcopy,
        list,
        bytes,
        memoryview,
        np.asarray,
        hash,
        lambda value: value[0],
        lambda value: value.__dict__,
        float,
    ],
)
def test_an_unreleased_vector_does_not_leave(leak: object) -> None:
    with pytest.raises((TypeError, AttributeError)):
        leak(SECRET)


@pytest.mark.parametrize("show", [repr, str, lambda v: f"{v}", lambda v: f"{v!r:>40}", ascii])
def test_an_unreleased_vector_shows_its_length_only(show: object) -> None:
    text = show(SECRET)
    assert "0.12" not in text
    assert "2 values" in text
