"""What the active party computes from its partners' answers to one query: a score per place.

It owns how exact, noised and missing scores enter theta, and the label that names missing partners;
it makes no move. None of it leaves the party.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.methods.private_model.joint import averaged
from hdpvfl_mq.methods.scoring.plan import ScoringPlan
from parties.assets import Assets
from parties.common_rows import block_of, rows_of
from parties.phases import Setup
from schemas.ids import PartyId
from schemas.tensor import Tensor

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Query:
    """A query that is not answered yet."""

    number: int
    places: Tensor


@dataclass(frozen=True)
class Answer:
    """Scores of one query; they never leave the active party.

    `without` has, for each partner that is missing somewhere, a mask of the places, one bit each.
    At the places in `refused` theta is not a score, because the manifest requires every partner.
    """

    number: int
    places: Places = field(repr=False)
    theta: FloatVector = field(repr=False)
    without: Mapping[PartyId, bytes]
    reasons: Mapping[PartyId, str]
    refused: bytes = b""


@dataclass(frozen=True)
class Part:
    """One partner's scores for the open query, at the places it grants."""

    values: FloatVector = field(repr=False)
    refused: bytes
    reason: str
    noise_std: float
    scale: float

    @classmethod
    def nobody(cls, count: int) -> Part:
        """The part of a partner that has not answered: every place refused."""
        none = pack_marks(np.ones(count, dtype=np.bool_))
        return cls(np.zeros(0), none, "it has not answered in time", 0.0, 0.0)


def unpacked(bits: bytes, count: int) -> Mask:
    """The mask of `count` places from its packed form, which is empty if no bit is set."""
    if bits and len(bits) != -(-count // 8):
        raise PeerError("a mask has one bit for each place")
    return unpack_marks(bits, count)


def added(own: Assets, setup: Setup, asked: Query, parts: Mapping[PartyId, Part]) -> Answer:
    """Theta of every place: the active party's columns plus each partner's expected scores."""
    plan, gamma = setup.plan, own.trained.coefficients
    places = asked.places.array().astype(np.int64)
    A = block_of(own, setup).taken(places)
    theta, doubt = A @ own.trained.weights, np.zeros(len(places))
    without, reasons = dict[PartyId, bytes](), dict[PartyId, str]()
    for passive in plan.manifest.passive_parties:  # party order: arrival is not information
        part = parts.get(passive) or Part.nobody(len(places))
        explained, left = np.zeros(len(places)), part.scale**2
        if (known := own.trained.score_regressions.get(passive)) is not None:
            explained, left = A @ known.b, known.variance
        expected, variance = _expected(explained, left, part)
        factor = gamma.get(passive, 1.0)
        theta, doubt = theta + factor * expected, doubt + factor**2 * variance
        if part.refused:
            without[passive], reasons[passive] = part.refused, part.reason
    theta = averaged(plan.family, theta, doubt)
    if own.data.offset is not None:
        reach = plan.family.spec.offset_max
        offset = own.data.offset[rows_of(own, setup).order[places]]
        theta = theta + np.clip(offset, -reach, reach)
    fixed = MappingProxyType(without), MappingProxyType(reasons)
    return Answer(asked.number, places, theta, *fixed, _refused(setup, without))


def session_plan(setup: Setup) -> ScoringPlan:
    """The plan of a run that is a scoring session."""
    assert isinstance(setup.plan, ScoringPlan)
    return setup.plan


def _refused(setup: Setup, without: Mapping[PartyId, bytes]) -> bytes:
    """The places without a score, because they lack a partner that the manifest requires."""
    if not without or session_plan(setup).method.partner_away == "without":
        return b""
    masks = np.array([np.frombuffer(bits, dtype=np.uint8) for bits in without.values()])
    return bytes(np.bitwise_or.reduce(masks).tobytes())


def _expected(
    explained: FloatVector, variance: float, part: Part
) -> tuple[FloatVector, FloatVector]:
    """A partner's expected scores, given its answer and `explained`, and their variances.

    `explained` is the regression on the active party's columns and `variance` what it leaves
    unexplained: the whole variance of a missing score.
    """
    missing, noise = unpacked(part.refused, len(explained)), part.noise_std**2
    trust = 1.0 if noise == 0.0 else variance / (variance + noise)
    doubt = np.where(missing, variance, variance * (1.0 - trust))
    expected = explained.copy()
    expected[~missing] += trust * (part.values - explained[~missing])
    return expected, doubt
