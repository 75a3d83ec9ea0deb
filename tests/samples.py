"""One valid example of every schema, generated from its fields, so new messages get one too."""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from schemas import ids
from schemas import messages as m
from schemas.config import RunManifest
from schemas.privacy import Release, SpendEvent
from schemas.tensor import Tensor
from tests.federation import manifest

DIGEST = bytes(range(32))
_TEXTS = ("shop", "test-run/shop/share/0", "tcp://localhost:5555", "0" * 64, "0" * 128)
_PLAIN: dict[type, tuple[Any, ...]] = {
    int: (1, 0, 128),
    float: (0.5, 1.0),
    str: _TEXTS,
    bytes: (DIGEST, bytes(64), b""),
    bool: (True,),
    type(None): (None,),
}
_CLASSES: dict[str, type[BaseModel]] = {
    kind.model_fields["kind"].default: kind for kind in get_args(m.Message)
}
# Seeds draw from these in this order, and some seeds are kept. New kinds come last.
_ORDER = """
    ack part_request part hello welcome run_offer run_accept run_refuse align_start align_block
    aligned agreement agreed round_plan score_share residual score_query score_reply
    round_report ending ended pause waiting resume withdraw run_closed ledger_head
    ledger_witness member_hello run_proposal run_answer run_stop run_news roster signed_roster
    pair key_changed
"""
KINDS = {kind: _CLASSES[kind] for kind in (*_ORDER.split(), *_CLASSES)}


def release(values=None, *, kind: str = "share", party: str = "shop", round_: int = 0) -> Release:
    """A release as a peer could send it."""
    values = np.array([3, -200, 5], dtype=np.int16) if values is None else values
    release_id = ids.release_id("test-run", party, kind, round_)
    event = SpendEvent(
        release_id=release_id,
        round=round_,
        mechanism="lattice_gaussian",
        mu2_units=5,
        tau_units=1,
    )
    return Release(
        release_id=release_id, tensor=Tensor.of(values), exponent=-3, noise_std=2.0, event=event
    )


def example(hint: Any) -> Any:
    """A valid value of a field's type."""
    ready = {Release: release, Tensor: lambda: release().tensor, RunManifest: manifest}
    if hint in ready:
        return ready[hint]()
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _example_of(hint)
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        return example(get_args(hint)[0])
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(inner) is tuple:
        candidates: tuple[Any, ...] = ((example(get_args(inner)[0]),),)
    elif inner in _PLAIN:
        candidates = _PLAIN[inner]
    else:
        return example(inner)
    for candidate in candidates:
        try:
            TypeAdapter(hint).validate_python(candidate, strict=True)
        except ValidationError:
            continue
        return candidate
    raise AssertionError(f"no example for {hint}: add one")


@cache
def _example_of(schema: type[BaseModel]) -> BaseModel:
    """Schemas are frozen, so all tests may share it."""
    hints = typing.get_type_hints(schema, include_extras=True)
    required = (name for name, info in schema.model_fields.items() if info.is_required())
    return schema(**{name: example(hints[name]) for name in required})


def sample(kind: str) -> m.Message:
    """A valid message of a kind."""
    return example(KINDS[kind])
