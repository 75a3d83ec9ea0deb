"""A default value is the same on the command line, in Python and in the Makefile."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import hdpvfl_mq
from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.cli import _parser
from hdpvfl_mq.app.commands.predict import PredictOptions
from hdpvfl_mq.app.commands.up import UpOptions
from hdpvfl_mq.app.live import Wanted

MAKEFILE = Path(__file__).parents[3] / "Makefile"


def typed(*words):
    return vars(_parser().parse_args(words))


@pytest.mark.parametrize(
    ("kind", "words"),
    [(UpOptions, ["up"]), (PredictOptions, ["predict"]), (Wanted, ["train"])],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_options_and_command_line_agree(kind, words):
    parsed = typed(*words)
    shared = {f.name: f.default for f in fields(kind) if f.name in parsed and f.name != "partners"}
    assert {"epsilon", "delta"} <= set(shared)
    assert {name: parsed[name] for name in shared} == shared


@pytest.mark.parametrize("estimator", ["VFLClassifier", "VFLRegressor"])
def test_estimators_agree(estimator):
    parameters = inspect.signature(getattr(hdpvfl_mq, estimator)).parameters
    for name in ("epsilon", "delta", "guarantee"):
        assert parameters[name].default == getattr(UpOptions, name), name


def test_a_plan_is_asked_for_what_a_run_takes():
    plan, up = typed("plan", "--rows", "100"), typed("up")
    assert (plan["epsilon"], plan["delta"]) == (up["epsilon"], up["delta"])


@pytest.mark.parametrize("name", ["DATASET", "PASSIVES", "EPSILON", "DELTA", "GUARANTEE", "SEED"])
def test_the_makefile_agrees(name):
    (written,) = re.findall(rf"^{name} \?= (\S+)$", MAKEFILE.read_text(), re.MULTILINE)
    wanted = getattr(defaults, name)
    assert type(wanted)(written) == wanted
