"""A session of scores with private weights: queries by place, sealed answers; both sides.

It owns what a query may ask and what an answer holds. People are aligned once; a query names places
in that order, so no id leaves. A passive party charges a query to its account of scored people
before it answers, and answers only for people whom the account grants. One query is open at a time.
Why training rows pay nothing, and what a scored person reveals: docs/scored-people.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.arrays.unreleased import FloatVector, Unreleased
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Charge,
    Charged,
    OperatorCommand,
    Received,
    Send,
    Step,
    TimerFired,
    arm,
)
from hdpvfl_mq.methods.private_model.statistics import scores
from hdpvfl_mq.privacy.receiving import receive_scores
from parties.assets import Assets
from parties.common_rows import block_of
from parties.phases import ActiveRounds, PassiveRounds, RoundState, Setup, Training, changed
from parties.rounds.base import Rounds, finished_round
from parties.rounds.score_sums import Answer, Part, Places, Query, added, session_plan, unpacked
from schemas.commands import AskScores
from schemas.ids import PartyId
from schemas.privacy import Release
from schemas.scoring import MAX_QUERY_PLACES, ScoreQuery, ScoreReply
from schemas.tensor import Tensor

QUERY_NUMBER_MAX = 10**12 - 1  # the number is part of a release id, which has twelve digits
NOBODY = Tensor.of(np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class ScoringRounds(RoundState):
    """Fields that both sides of a session have."""

    open: Query | None = None

    @property
    def is_open(self) -> bool:
        """Whether a query waits for its answer."""
        return self.open is not None


def _checked(places: Tensor, rows: int) -> Places:
    """The places of a query: at least one, ascending, within the session."""
    found = places.array()
    if found.ndim != 1 or found.dtype.kind != "i" or not 1 <= found.size <= MAX_QUERY_PLACES:
        raise PeerError(f"a query asks for 1 to {MAX_QUERY_PLACES} places")
    found = found.astype(np.int64)
    if found[0] < 0 or found[-1] >= rows or not (found[1:] > found[:-1]).all():
        raise PeerError(f"a query asks for ascending places among the {rows} of its session")
    return found


# -- passive ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScoringPassive(ScoringRounds, PassiveRounds):
    """A passive party's round state: the number of its last query."""

    taken: int = -1


def start_passive(own: Assets, setup: Setup) -> ScoringPassive:
    """Start with the private weights of the model."""
    return ScoringPassive(w=own.trained.weights)


def query(own: Assets, state: Training, given: Received[ScoreQuery]) -> Step[Training]:
    """Charge a query to the account of scored people; a query with `last` ends the session."""
    message, rounds = given.message, state.rounds
    if not isinstance(rounds, ScoringPassive) or state.is_done:
        raise PeerError("a query of scores in a run that is not an open session")
    if rounds.open is not None or message.number <= rounds.taken:
        raise PeerError("queries come one at a time, and their numbers rise")
    if message.number > QUERY_NUMBER_MAX:
        raise PeerError(f"a query has a number up to {QUERY_NUMBER_MAX}")
    if message.last:
        ended = changed(state, rounds=changed(rounds, taken=message.number))
        return finished_round(ended, is_over=True)
    _checked(message.places, state.setup.plan.rows)
    asked = Query(message.number, message.places)
    rounds = changed(rounds, taken=message.number, open=asked)
    charge = Charge(query=message.number, places=message.places)
    return changed(state, rounds=rounds), (charge,)


def answer(own: Assets, state: Training, given: Charged) -> Step[Training]:
    """Send the scores of the people whom the account grants."""
    rounds, plan = state.rounds, session_plan(state.setup)
    if not isinstance(rounds, ScoringPassive) or rounds.open is None:
        raise PeerError("the account answers a query that nobody asked")
    number, places = rounds.open.number, rounds.open.places.array().astype(np.int64)
    if given.query != number:
        raise PeerError(f"the account answers query {given.query} instead of {number}")
    granted = places[~unpacked(given.refused, len(places))]
    active = plan.manifest.active_party
    release = state.setup.mechanism.answer(
        _population(own, state),
        granted,
        number,
        seal=own.sealing_key(active, own.release_id(own.party, "score", number)),
        scale=own.trained.score_size,
    )
    message = ScoreReply(number=number, refused=given.refused, reason=given.reason, release=release)
    return changed(state, rounds=changed(rounds, open=None)), (Send((active,), message),)


def _population(own: Assets, state: Training) -> Unreleased | Release:
    """Scores of the whole session in units of their deviation, in the form in which they leave."""
    setup, plan = state.setup, session_plan(state.setup)
    is_noised, bound, step = plan.method.scores == "noised", plan.score_bound, plan.method.coarsen

    def made() -> Unreleased | Release:
        block, units = block_of(own, setup), own.allocate((plan.rows,), np.float64)
        for part in chunks(plan.rows):
            some = scores(block, part, own.trained.weights) / own.trained.score_size
            if is_noised:
                some = np.clip(some, -bound, bound)
            elif step:
                some = np.rint(some / step) * step
            units[part] = some
        if not is_noised:
            return Unreleased(units)
        return setup.mechanism.release(
            Unreleased(units),
            "score",
            0,
            state.terms,
            allocate=own.allocate,
            engine=own.engine,
        )

    return own.memo.once("scores", setup.key, made)


def learn(own: Assets, state: Training, received: FloatVector) -> NoReturn:
    """PeerError: a scoring session has no residuals."""
    raise PeerError("nobody sends residuals in a scoring session")


def wait(own: Assets, state: Training) -> Step[Training]:
    """Do nothing: queries start with the operator."""
    return state, ()


# -- active -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScoringActive(ScoringRounds, ActiveRounds):
    """The active party's round state: the open query, answers so far, and the last result."""

    next: int = 0
    owed: Mapping[PartyId, int] = field(default_factory=lambda: MappingProxyType({}))
    parts: Mapping[PartyId, Part] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    last: Answer | None = field(default=None, repr=False)
    is_ending: bool = False

    def needs(self, party: PartyId) -> bool:
        """Whether an answer of this party is outstanding."""
        return party in self.owed


def start_active(own: Assets, setup: Setup) -> ScoringActive:
    """Start with the active party's weights of the model."""
    return ScoringActive(w=own.trained.weights)


def ask(own: Assets, state: Training, given: OperatorCommand) -> Step[Training]:
    """Ask every partner that owes no earlier answer; this score does without the others."""
    rounds, plan = _active(state), session_plan(state.setup)
    assert isinstance(given.command, AskScores)
    if rounds.open is not None or rounds.is_ending:
        raise PeerError("a query is open, or the session is at its end")
    places = Tensor.smallest(_checked(given.command.places, plan.rows))
    number = rounds.next
    asked = tuple(p for p in plan.manifest.passive_parties if p not in rounds.owed)
    rounds = changed(
        rounds,
        next=number + 1,
        open=Query(number, places),
        owed=MappingProxyType({**rounds.owed, **dict.fromkeys(asked, number)}),
    )
    state = changed(state, rounds=rounds)
    if not asked:
        return _settled(own, state)
    message = ScoreQuery(number=number, last=False, places=places)
    return state, (Send(asked, message), arm(_timer(number), plan.method.answer_within_s))


def reply(own: Assets, state: Training, given: Received[ScoreReply]) -> Step[Training]:
    """Open a partner's answer; a late answer only shows that the partner is back."""
    message, rounds, plan = given.message, _active(state), session_plan(state.setup)
    if rounds.owed.get(given.sender) != message.number:
        raise PeerError("an answer to a query that is not open with this partner")
    expected = own.release_id(given.sender, "score", message.number)
    if message.release.release_id != expected:
        raise PeerError(f"expected {expected}")
    owed = MappingProxyType({p: n for p, n in rounds.owed.items() if p != given.sender})
    if rounds.open is None or rounds.open.number != message.number:
        return changed(state, rounds=changed(rounds, owed=owed)), ()
    count = rounds.open.places.shape[0]
    granted = count - int(unpacked(message.refused, count).sum())
    key = own.sealing_key(given.sender, expected)
    values = receive_scores(message.release, plan.passive_noise, key, count=granted)
    scale = message.release.scale
    noise_std = plan.passive_noise.noise_std * scale
    part = Part(values * scale, message.refused, message.reason, noise_std, scale)
    parts = MappingProxyType({**rounds.parts, given.sender: part})
    rounds = changed(rounds, owed=owed, parts=parts)
    state = changed(state, rounds=rounds)
    assert rounds.open is not None
    return (state, ()) if rounds.open.number in owed.values() else _settled(own, state)


def too_late(own: Assets, state: Training, given: TimerFired) -> Step[Training]:
    """Stop waiting: score without the partners that have not answered."""
    waiting = _active(state).open
    is_late = waiting is not None and given.timer == _timer(waiting.number)
    return _settled(own, state) if is_late else (state, ())


def _timer(number: int) -> str:
    """Two timer names, used alternately.

    A name per query would add a record per score; with one name, the previous query's timer could
    expire for the next query.
    """
    return f"answer:{number % 2}"


def end(own: Assets, state: Training, given: OperatorCommand) -> Step[Training]:
    """End the session, after the open query if there is one."""
    rounds = _active(state)
    if rounds.is_ending:
        return state, ()
    state = changed(state, rounds=changed(rounds, is_ending=True))
    return (state, ()) if rounds.open else _end(state)


def _end(state: Training) -> Step[Training]:
    message = ScoreQuery(number=_active(state).next, last=True, places=NOBODY)
    state, effects = finished_round(state, is_over=True)
    return state, (Send(state.manifest.passive_parties, message), *effects)


def _settled(own: Assets, state: Training) -> Step[Training]:
    """Add up the answers; the result never leaves the active party."""
    rounds = _active(state)
    assert rounds.open is not None
    found = added(own, state.setup, rounds.open, rounds.parts)
    rounds = changed(rounds, open=None, parts=MappingProxyType({}), last=found)
    state = changed(state, rounds=rounds)
    return _end(state) if rounds.is_ending else (state, ())


def _active(state: Training) -> ScoringActive:
    if not isinstance(state.rounds, ScoringActive) or state.is_done:
        raise PeerError("scores are asked for in an open session only")
    return state.rounds


ROUNDS = Rounds(
    active_start=start_active,
    active_proceed=wait,
    passive_start=start_passive,
    passive_proceed=wait,
    passive_learn=learn,
)
