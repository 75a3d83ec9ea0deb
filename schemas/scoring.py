"""The two messages of a scoring session: a query for scores and its reply.

It owns these shapes and their limits; parties/rounds/scoring.py defines what they do.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Count, Strict, Text
from schemas.privacy import Release
from schemas.route import ACTIVE_ROLE, PASSIVE_ROLE, Route
from schemas.tensor import Tensor

MAX_QUERY_PLACES = 2**16  # people one query may ask for


class ScoreQuery(Strict):
    """Active to every passive: asks for scores at these places; `last` ends the session."""

    kind: Literal["score_query"] = "score_query"
    route: ClassVar[Route] = Route(ACTIVE_ROLE, PASSIVE_ROLE, array_bytes=MAX_QUERY_PLACES * 8)
    number: Count
    last: bool
    places: Tensor


class ScoreReply(Strict):
    """Passive to active: sealed scores for the places that its account grants."""

    kind: Literal["score_reply"] = "score_reply"
    route: ClassVar[Route] = Route(PASSIVE_ROLE, ACTIVE_ROLE, array_bytes=MAX_QUERY_PLACES * 8)
    number: Count
    refused: Annotated[bytes, Field(max_length=MAX_QUERY_PLACES // 8)]  # a bit per place, or empty
    reason: Text  # why places are refused
    release: Release


ScoringMessage = ScoreQuery | ScoreReply
