"""Only the files listed here may ask of which class a method, its plan or its rounds are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from hdpvfl_mq.methods import PLANS
from hdpvfl_mq.methods.run_plan import RunPlan
from parties.phases import ActiveRounds, PassiveRounds
from parties.rounds import ROUNDS
from schemas.method_facts import Facts
from schemas.methods import (
    TRAINING_KINDS,
    VARIANTS,
    Descent,
    Prediction,
    PrivateModel,
    Scoring,
    with_options,
)

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "hdpvfl_mq", "parties", "broker")
OWN = ("hdpvfl_mq/methods/", "parties/rounds/")
# Each reads what only this method's plan or rounds have.
ALLOWED = {
    "hdpvfl_mq/app/commands/plan.py",  # the forecast that `hdpvfl plan` shows
    "hdpvfl_mq/app/demo/rehearsal.py",  # coefficients of the private model
    "hdpvfl_mq/app/estimators/fitting.py",  # the Gram matrix of the private model
    "hdpvfl_mq/audit/checks_scoring.py",  # the price of one score
    "parties/process/hosted.py",  # the Gram matrix of the private model
    "parties/process/models.py",  # theta of a prediction
    "parties/score_desk.py",  # the open query of a session
    "parties/snapshot.py",  # the open query of a session
}

# `type(x).model_fields`; of a method only schemas/methods.py asks it, for `with_options`.
FIELDS_ALLOWED = {
    "hdpvfl_mq/app/commands/check.py",  # the rules of ids
    "hdpvfl_mq/runtime/settings.py",  # the fields of any model
    "parties/admission.py",  # the rules of ids
    "schemas/base.py",  # its own
    "schemas/methods.py",
}


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def names() -> set[str]:
    """Variants, plans and round states in the product; not the bases that all methods share."""
    assert PLANS
    assert ROUNDS
    rounds = {*below(ActiveRounds), *below(PassiveRounds)}
    found = {*VARIANTS, *below(RunPlan), *rounds}
    # A class that both sides of one method share, such as ScoringRounds.
    found |= {base for each in rounds for base in each.__mro__ if "parties.rounds." in str(base)}
    return {each.__name__ for each in found if each.__module__.partition(".")[0] in PRODUCT}


def asked(tree: ast.AST) -> set[str]:
    """Names of classes in isinstance, issubclass, `type(x) is` and the cases of a match."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                found |= mentioned(kinds)
            case ast.MatchClass(cls=kind):
                found |= mentioned(kind)
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=kinds):
                found = found.union(*map(mentioned, kinds))
    return found


def asks_for_fields(tree: ast.AST) -> bool:
    """Whether `type(x).model_fields` is read: it tells a method by the fields it has."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "model_fields"
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "type"
        for node in ast.walk(tree)
    )


def mentioned(node: ast.AST) -> set[str]:
    plain = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return plain | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def test_only_the_files_listed_ask_which_method_a_run_has():
    known = names()
    found = {
        file
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if not (file := path.relative_to(ROOT).as_posix()).startswith(OWN)
        and asked(ast.parse(path.read_text())) & known
    }
    assert found == ALLOWED


def test_only_the_files_listed_ask_which_fields_a_value_has():
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if "model_fields" in (code := path.read_text()) and asks_for_fields(ast.parse(code))
    }
    assert found == FIELDS_ALLOWED


def test_a_question_for_fields_is_seen():
    assert asks_for_fields(ast.parse("'epochs' in type(base.method).model_fields"))
    assert not asks_for_fields(ast.parse("Peer.model_fields"))


def test_an_option_that_a_method_does_not_have_is_named():
    assert with_options(PrivateModel(), {"disclosed_rows": 3}) == PrivateModel(disclosed_rows=3)
    with pytest.raises(ValueError, match="method descent has no disclosed_rows, noise"):
        with_options(Descent(), {"disclosed_rows": 3, "epochs": 1, "noise": "bounded"})
    with pytest.raises(ValidationError):
        with_options(Descent(), {"epochs": 0})


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(m, Scoring)",
        "isinstance(m, Descent | methods.Scoring)",
        "isinstance(m, (ScoringRounds, int))",
        "type(m) is PrivateModelPlan",
        "match m:\n case Scoring(scores='noised'): pass",
    ],
)
def test_every_way_to_ask_is_seen(code):
    assert asked(ast.parse(code)) & names()


def test_a_variant_without_a_fact_cannot_be_made():
    class Forgetful(Facts):
        kind: str = "forgetful"

    with pytest.raises(TypeError, match="abstract"):
        Forgetful()  # type: ignore[abstract]  # the type checker refuses it, too


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
def test_every_variant_states_every_fact_itself(variant):
    facts = Facts.__abstractmethods__
    assert facts <= vars(variant).keys()
    assert not variant.__abstractmethods__
    assert not facts & variant.model_fields.keys()  # no fact travels
    assert isinstance(vars(variant)["trains"], bool)
    assert (variant.model_fields["kind"].default in TRAINING_KINDS) == variant.trains


def test_a_run_that_trains_nothing_names_its_model():
    with pytest.raises(ValidationError):
        Scoring()  # type: ignore[call-arg]  # no default names a model
    assert Scoring(model_run="first").model_of == "first"
    assert Prediction(model_run="first", weight_norm=2.0, distance=1.0).covers == (2.0, 1.0)
    assert all(variant.model_of is None for variant in VARIANTS if variant.trains)
