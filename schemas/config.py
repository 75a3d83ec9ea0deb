"""What people write in TOML: the manifest of a run and the settings of processes.

It owns every option and its bounds; it reads no file, and policy.py holds a party's policy. Secrets
appear only as file names. The manifest is public and sent to everybody; settings never leave their
machine.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.base import Extended, Positive, Strict
from schemas.data import DataSettings
from schemas.engine import EngineSettings
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import (
    COORDINATOR,
    MAX_PASSIVES,
    OLDEST_VERSION,
    PartyId,
    PartyRole,
    RoleName,
    RunId,
    Version,
)
from schemas.methods import Absence, Descent, Guarantee, Method
from schemas.model import LossSpec, PenaltySpec
from schemas.privacy import Budget

AlignmentMethod = Literal["ecdh", "oprf"]
HexKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
# Compiled here: pydantic's own engine unrolls a class of Unicode to 1 MiB in every schema with it.
Endpoint = Annotated[str, Field(pattern=re.compile(r"^tcp://[^\s/]{1,253}:[0-9]{1,5}\Z"))]
Proxy = Annotated[str, Field(pattern=re.compile(r"^[^\s/]{1,253}:[0-9]{1,5}\Z"))]  # SOCKS5
# Where a service answers /healthz, /readyz and /metrics: on this machine only.
Loopback = Annotated[str, Field(pattern=r"^(127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}$")]
LogFormat = Literal["text", "json"]
LogLevel = Literal["info", "warning", "error"]
Seconds = Annotated[float, Field(gt=0.0, le=30 * 86400.0)]


_FORM = r"(text|email|telephone:[A-Z]{2}|name|date)"


class IdRules(Strict):
    """How ids are read; equal at all parties, checked before any work.

    `kind` is text or integer for all id columns, or the kind of each column, as in "name+date"; a
    telephone number without a country code belongs to the country that `kind` names. Bars separate
    several keys, as in "email|telephone:DE|name+date": people are matched by the first that fits.
    """

    kind: Annotated[str, Field(pattern=rf"^({_FORM}([+|]{_FORM}){{0,15}}|integer)$")] = "text"
    columns: Annotated[int, Field(ge=1, le=16)] = 1
    casefold: bool = False
    duplicates: Literal["error", "first", "ignore"] = "error"
    empties: Literal["error", "drop"] = "error"

    @model_validator(mode="after")
    def _fitting_forms(self) -> Self:
        if self.forms and len(self.forms) != self.columns:
            raise ValueError("kind: name what each of the id columns holds, joined by + or |")
        return self

    @property
    def forms(self) -> tuple[str, ...]:
        """The kind of each id column, if columns may be spelt in several ways; else nothing."""
        return () if self.kind in ("text", "integer") else tuple(re.split(r"[+|]", self.kind))

    @property
    def key_columns(self) -> tuple[slice, ...]:
        """The id columns of each key, in the order in which keys are tried."""
        if "|" not in self.kind:
            return (slice(0, self.columns),)
        ends = [0, *accumulate(len(key.split("+")) for key in self.kind.split("|"))]
        return tuple(slice(start, end) for start, end in pairwise(ends))


class AlignmentSpec(Strict):
    """How common entities are found."""

    method: Literal["auto", AlignmentMethod] = "auto"
    ids: IdRules = IdRules()
    rows_min: Annotated[int, Field(ge=1, le=10**9)] = 2
    rows_max: Annotated[int, Field(ge=1, le=10**9)] = 10**9
    reuse: bool = True  # use the alignment that all parties keep of the same ids, if they do


class RunManifest(Extended):
    """One run, complete and public: every party derives the same plan from the manifest alone."""

    later: ClassVar[tuple[str, ...]] = ("wire",)

    run: RunId
    active_party: PartyId
    passive_parties: Annotated[tuple[PartyId, ...], Field(min_length=1, max_length=MAX_PASSIVES)]
    guarantee: Guarantee = "sound"
    budget: Budget | None = None
    loss: LossSpec = LossSpec(name="logistic")
    penalty: PenaltySpec = PenaltySpec(name="l2", strength=1e-3)
    intercept: bool = True  # the active party's constant column, never penalised
    method: Method = Descent()
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    alignment: AlignmentSpec = AlignmentSpec()
    absence: Absence = "wait"
    absent_after_s: Seconds = 30.0
    deadline_s: Seconds = 86400.0
    scale_rows: bool = True  # only guarantee none may turn it off
    rounds_ahead: Annotated[int, Field(ge=1, le=100_000)] = 256
    # The version of the protocol that the run uses; services agree on it when a run opens.
    wire: Version = OLDEST_VERSION

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = self.parties
        if len(set(names)) != len(names) or COORDINATOR in names:
            raise ValueError(
                f"party names must differ from each other and from {COORDINATOR!r}: rename one"
            )
        if (self.budget is None) == self._has_noise:
            raise ValueError(
                "a budget (epsilon, delta) is needed with guarantee sound or paper "
                "and must be left out with guarantee none and for disclosed scores"
            )
        if self.guarantee != "none" and not self.scale_rows:
            raise ValueError("scale_rows: only guarantee none may leave rows unscaled")
        self.method.check(guarantee=self.guarantee, intercept=self.intercept, absence=self.absence)
        return self

    @property
    def _has_noise(self) -> bool:
        scores = self.method.asks.scores
        return self.guarantee != "none" if scores is None else scores == "noised"

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """All parties, the active party first."""
        return (self.active_party, *self.passive_parties)


class Peer(Strict):
    """A peer's public signing key."""

    party: PartyId
    role: RoleName
    verify_key: HexKey


class Member(Peer):
    """A party the broker admits, by the key of its connection."""

    curve_key: HexKey


class PartySettings(Strict):
    """One party's process for one run; a service writes one for each run it takes part in."""

    party: PartyId
    role: PartyRole
    run: RunId
    broker: Endpoint
    broker_curve_key: HexKey
    keys: Path
    policy: Path
    runs: Path = "runs"
    state: Path = "state"
    patience_s: Seconds = 600.0  # stop when nothing was received for this long
    memory_max_gib: Positive | None = None  # limit of the process; None: that of the machine
    ids: IdRules = IdRules()
    data: DataSettings
    engine: EngineSettings = EngineSettings()
    model: Path | None = None  # model of an earlier run, if this run predicts with it
    scores_out: Path | None = None  # where an active party's scores go; None: predictions.csv
    session: bool = False  # a scoring session that stays open for 'hdpvfl score'
    wire: Version = OLDEST_VERSION  # the manifest's; a run uses one version of the protocol
    wire_max: Version = OLDEST_VERSION  # the newest version that this party speaks
    peers: Annotated[tuple[Peer, ...], Field(min_length=2, max_length=MAX_PASSIVES + 1)]

    @model_validator(mode="after")
    def _roles(self) -> Self:
        if self.role == "passive" and self.data.label_column is not None:
            raise ValueError(
                "data.label_column: a passive party has no label; remove the field, "
                'or set role = "active"'
            )
        if self.model is not None and self.data.label_column is not None:
            raise ValueError("data.label_column: rows to score have no label; remove the field")
        if self.role == "active" and self.data.label_column is None and self.model is None:
            raise ValueError("data.label_column: the active party must name its label column")
        return self


class PartyServiceSettings(Strict):
    """One party's service: it runs until stopped and serves every run its federation agrees on."""

    party: PartyId
    role: Literal["active", "passive"]
    federation: RunId
    broker: Endpoint
    proxy: Proxy | None = None
    broker_curve_key: HexKey
    broker_verify_key: HexKey
    keys: Path
    policy: Path
    runs: Path = "runs"
    state: Path = "state"
    ids: IdRules = IdRules()
    data: DataSettings
    engine: EngineSettings = EngineSettings()
    score_file: Path | None = None  # rows to score in a prediction; None: data.file
    log: LogFormat = "text"
    log_level: LogLevel = "info"
    memory_max_gib: Positive | None = None  # limit of the process; None: that of the machine
    watch: Loopback | None = None  # for instance 127.0.0.1:7780; needs the extra `page`
    # The newest version of the protocol to speak; lower it for a broker that is upgraded later.
    speaks: Annotated[Version, Field(le=PROTOCOL_VERSION)] = PROTOCOL_VERSION
    # Members whose keys were exchanged by hand; the keys of those who join are in the state folder.
    peers: Annotated[tuple[Peer, ...], Field(max_length=MAX_PASSIVES + 1)] = ()


class FederationSettings(Strict):
    """One federation a broker hosts."""

    name: RunId
    # Members whose keys were exchanged by hand; those who join are in the state folder.
    members: Annotated[tuple[Member, ...], Field(max_length=MAX_PASSIVES + 1)] = ()


class BrokerServiceSettings(Strict):
    """The broker's service: it runs until stopped and hosts every run its federations agree on."""

    bind: Endpoint
    address: Endpoint | None = None  # where members reach it, as written in invitations
    keys: Path
    runs: Path = "runs"
    state: Path = "state"
    log: LogFormat = "text"
    log_level: LogLevel = "info"
    watch: Loopback | None = None  # for instance 127.0.0.1:7780; needs the extra `page`
    # The newest version of the protocol to speak; a broker speaks at least that of every member.
    speaks: Annotated[Version, Field(le=PROTOCOL_VERSION)] = PROTOCOL_VERSION
    federations: Annotated[tuple[FederationSettings, ...], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _apart(self) -> Self:
        names = [federation.name for federation in self.federations]
        if len(set(names)) != len(names):
            raise ValueError("federations: two have the same name; rename one")
        return self


class BrokerSettings(Strict):
    """The broker's process and the coordinator it hosts, for one run."""

    bind: Endpoint
    keys: Path
    manifest: Path
    runs: Path = "runs"
    members: Annotated[tuple[Member, ...], Field(min_length=2, max_length=MAX_PASSIVES + 1)]
