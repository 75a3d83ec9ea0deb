"""`step` is pure: the same input into the same state, twice, gives the same, and changes nothing.

Every input of whole simulated runs goes twice into the state it met. What a party remembers outside
its state (its workspace and its memo) is there in the first step and empty in the second, so it can
only be a memo.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from hdpvfl_mq.app.refold import RecordedStore
from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import Input, Step
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.codec import decode_header
from parties.party import Party
from parties.process.mapped_arrays import MappedArrays
from schemas.config import AlignmentSpec, IdRules
from schemas.envelope import PROTOCOL_VERSION
from schemas.records import Acknowledged, EnvelopeReceived, StepRecord, TurnedAway, Withheld
from tests.deep import arrays_in, deep_digest
from tests.federation import Federation, manifest, tables
from tests.golden.recorded import RUNS, federation, read

pytestmark = pytest.mark.seconds


@dataclass
class TwiceFederation(Federation):
    """Every step of every role is made twice."""

    allocate: Allocate = np.empty
    steps: list[str] = field(default_factory=list)

    def node(self, party: str) -> Node:
        node = super().node(party)
        if isinstance(node.role, Party):
            node.role.own = replace(node.role.own, allocate=self.allocate)
        step = node.role.step

        def twice(state: Any, given: Input) -> Step[Any]:
            before = deep_digest(state)
            first, second = _outcomes(node.role, step, state, given)
            assert deep_digest(state) == before, f"{given!r} has changed the state it met"
            assert deep_digest(first) == deep_digest(second), f"{given!r} is not repeatable"
            self.steps.append(type(state).__name__)
            after, effects = step(state, given)
            mapped = [each for each in arrays_in(after) if _is_mapped(each)]
            assert not mapped, "a state holds files"
            return after, effects

        node.role.step = twice
        return node


def _outcomes(role: Any, step: Any, state: Any, given: Input) -> tuple[Any, Any]:
    """The same step twice: as the process is, and with a party that remembers nothing.

    What the process remembers is put back, or the first step of the next input would also start
    without it, and could not differ.
    """
    first = _outcome(step, state, given)
    if not isinstance(role, Party):
        return first, _outcome(step, state, given)
    own, role.own = role.own, replace(role.own)  # a copy has a new workspace and a new memo
    try:
        return first, _outcome(step, state, given)
    finally:
        role.own = own


def _outcome(step: Any, state: Any, given: Input) -> Any:
    try:
        after, effects = step(state, given)
    except PeerError as refused:
        return str(refused)
    return after, effects


def _is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


@pytest.mark.parametrize("method", ["ecdh", "oprf"])
def test_every_input_of_a_run_is_repeatable_and_changes_no_state(
    method: Literal["ecdh", "oprf"], tmp_path: Path
) -> None:
    alignment = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=10, method=method)
    newest = manifest(alignment=alignment, epochs=1, wire=PROTOCOL_VERSION)
    federation = TwiceFederation(newest, tables(44))
    federation.allocate = MappedArrays(tmp_path)
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    assert {"Joining", "Accepted", "Aligning", "Aligned", "Training"} <= set(federation.steps)
    assert federation.steps.count("Aligning") >= 12


@pytest.mark.parametrize("party", ["bank", "shop", "telco", "coordinator"])
@pytest.mark.parametrize("name", RUNS)
def test_every_input_of_a_golden_journal_is_repeatable(name: str, party: str) -> None:
    """Recorded runs, whatever method they are of; the recorded effects are met as well."""
    made = federation(name)
    live = made.node(party)
    node = Node(live.role, live.identity, made.contacts(party), journal=RecordedStore(()))
    fed = 0
    for record, stored in chain.walk(read(name)[party]):
        if isinstance(record.input, Acknowledged | TurnedAway | Withheld):  # no move of the role
            node.refold(record, stored)
            fed += 1
            continue
        given, _ = node._recorded_input(record.input)
        if not isinstance(given, PeerError):
            state, before = node.state, deep_digest(node.state)
            first, second = _outcomes(node.role, node.role.step, state, given)
            assert deep_digest(first) == deep_digest(second), record.index
            assert deep_digest(state) == before, record.index
            fed += 1
        _go_on(node, record, stored)
    assert fed == len(read(name)[party])


def _go_on(node: Node, record: StepRecord, stored: bytes) -> None:
    """Take the recorded step and demand its bytes; the mailbox has counted its envelope before."""
    if isinstance(record.input, EnvelopeReceived):
        node.mailbox._inbox[decode_header(record.input.frames).sender].received -= 1
    node.refold(record, stored)
