"""What the rest of the project must know of a method: facts that every variant states.

It owns the questions; schemas/methods.py has each variant's answers. No fact has a default: a
variant that leaves one out is abstract, so neither mypy nor Python lets anybody make one.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from schemas.base import Strict
from schemas.ids import RunId

Noise = Literal["gaussian", "bounded"]
Scores = Literal["disclosed", "noised"]
Payer = Literal["rows", "scored people"]


@dataclass(frozen=True, kw_only=True)
class Asks:
    """What a party's policy must allow before the party takes part."""

    noise: Noise
    disclosed_rows: int  # rows of the training whose exact scores leave
    columns_max: int | None  # most columns of a passive party; None: any number
    scores: Scores | None  # how scores of single people leave; None: nobody asks for any
    coarsen: float  # their step, if they are disclosed


class Facts(Strict):
    """The base of every variant; a constant fact is a `ClassVar` there, another one a property."""

    @property
    @abstractmethod
    def trains(self) -> bool:
        """Whether the run learns weights; otherwise it scores with those of an earlier run."""

    @property
    @abstractmethod
    def model_of(self) -> RunId | None:
        """The run whose weights this run scores with; None if it trains."""

    @property
    @abstractmethod
    def is_session(self) -> bool:
        """Whether the run stays open and answers queries about single people."""

    @property
    @abstractmethod
    def payer(self) -> Payer:
        """Whose budget its releases are charged to: that of all rows, or of scored people."""

    @property
    @abstractmethod
    def active_releases(self) -> bool:
        """Whether numbers about the active party's rows leave it."""

    @property
    @abstractmethod
    def active_rows_scaled(self) -> bool:
        """Whether the active party's columns enter a release, so that its rows need norm 1."""

    @property
    @abstractmethod
    def may_stop_early(self) -> bool:
        """Whether a public rule may end the run before its last round."""

    @property
    @abstractmethod
    def session_bound(self) -> float | None:
        """B of a session that scores with its weights; None if its weights are not private."""

    @property
    @abstractmethod
    def covers(self) -> tuple[float, float] | None:
        """The weight norm and the distance of an earlier run's weights that its price covers.

        None if it uses no weights of an earlier run, or private ones only.
        """

    @property
    @abstractmethod
    def asks(self) -> Asks:
        """What a policy must allow."""
