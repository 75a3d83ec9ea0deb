"""Neighbouring runs that come close to the bounds, each with the bug it would reveal.

It owns the thirteen planted bugs. Plans, noise, mechanism and ledger are the real ones; each bug is
planted in the code where it would occur. Every scenario also runs without its bug, and must then
keep the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import numpy as np
from privacy_audit import Case, Evidence, lattice
from privacy_neighbours import Loss, Setting, active_releases, passive_releases

from hdpvfl_mq.arrays.unreleased import Unreleased
from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods.descent.bound import ActiveBounds, PassiveBounds, PublicSchedule
from hdpvfl_mq.methods.descent.plan import plan_sound
from hdpvfl_mq.methods.descent.sensitivity import profile
from hdpvfl_mq.privacy import mechanism as mechanism_module
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.calibration import epsilon_of, mu_of, noise_std_classical
from hdpvfl_mq.privacy.ledger import RunAccount
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.noise import ladder, round_ratio, stream_key
from hdpvfl_mq.privacy.plan import NoisePlan
from schemas.model import LossSpec
from schemas.privacy import Budget, ReleaseBooked, RunReserved

BUDGET = Budget(epsilon=10.0, delta=0.01)
KEY = bytes(range(32))
HUBER = Loss(
    residual=lambda theta, y: np.clip(theta - y, -1.0, 1.0),
    bound=1.0,
    smoothness=1.0,
    labels=(-50.0, 50.0),
)
LOGISTIC = Loss(
    residual=lambda theta, y: -y / (1.0 + np.exp(y * theta)),
    bound=1.0,
    smoothness=0.25,
    labels=(-1.0, 1.0),
)


def plain(batch_rows: tuple[int, ...], epochs: int, eta: float, radius: float) -> Setting:
    schedule = PublicSchedule(batch_rows, epochs, eta)
    return Setting(schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=radius)


def flipped_label(rows: int, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.zeros((2, 1, rows))
    first[0, :times], second[0, :times] = 50.0, -50.0
    return first, second


def residuals(times: int = 1) -> tuple[NoisePlan, np.ndarray, np.ndarray]:
    """The plan and the residuals of three epochs in which one label flips."""
    setting = plain((5,), 3, 0.01, 5.0)
    plan = plan_sound(setting.active(HUBER), setting.schedule, BUDGET, value_bound=1.0)
    X, received = np.ones((1, 5, 1)), np.zeros((1, 3, 5))
    first, second = (
        lattice(active_releases(X, y, received, setting, HUBER), 2.0**plan.exponent)
        for y in flipped_label(5, times)
    )
    return plan, first, second


def honest(bug: bool, runs: int) -> Evidence:
    assert not bug
    plan, first, second = residuals()
    return Case(plan.mu, 0.01, first, second, plan.ratio).evidence(runs, KEY)


def narrower_noise(factor: float) -> Callable[[bool, int], Evidence]:
    def run(bug: bool, runs: int) -> Evidence:
        plan, first, second = residuals()
        ratio = round_ratio(plan.ratio * factor) if bug else plan.ratio
        return Case(plan.mu, 0.01, first, second, ratio).evidence(runs, KEY)

    return run


def classical_noise(bug: bool, runs: int) -> Evidence:
    budget = Budget(epsilon=20.0, delta=1e-5)
    setting = plain((5,), 3, 0.01, 5.0)
    plan = plan_sound(setting.active(HUBER), setting.schedule, budget, value_bound=1.0)
    _, first, second = residuals()
    scale = 2.0 ** (residuals()[0].exponent - plan.exponent)
    published = noise_std_classical(plan.sensitivity, 20.0, 1e-5) / 2.0**plan.exponent
    ratio = round_ratio(published) if bug else plan.ratio
    case = Case(mu_of(20.0, 1e-5), 1e-5, first * scale, second * scale, ratio)
    return case.evidence(runs, KEY)


def row_twice(bug: bool, runs: int) -> Evidence:
    plan, first, second = residuals(times=2 if bug else 1)
    return Case(plan.mu, 0.01, first, second, plan.ratio).evidence(runs, KEY)


def released_late(bug: bool, runs: int) -> Evidence:
    schedule = PublicSchedule((2,), 1, 1.0)
    setting = Setting(
        schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=2.0, local_steps=6
    )
    plan = plan_sound(setting.active(HUBER), schedule, BUDGET, value_bound=1.0)
    X, received = np.ones((1, 2, 1)), np.zeros((1, 1, 2))
    after = setting.local_steps if bug else 0
    first, second = (
        lattice(
            active_releases(X, y, received, setting, HUBER, released_after=after),
            2.0**plan.exponent,
        )
        for y in flipped_label(2)
    )
    return Case(plan.mu, 0.01, first, second, plan.ratio).evidence(runs, KEY)


def intercept_contracts(bug: bool, runs: int) -> Evidence:
    # Received values saturate all rows but one, so nothing pulls the intercept back for 8 epochs;
    # in the last round 20 rows show it at once.
    schedule = PublicSchedule((21, 20), 8, 1.0)
    setting = Setting(
        schedule=schedule, penalty="l2", lam=0.5, alpha=0.0, radius=99.0, local_steps=5, free=1
    )
    bounds = setting.active(HUBER)
    if bug:
        wrong = Setting(
            schedule=schedule, penalty="l2", lam=0.5, alpha=0.0, radius=99.0, local_steps=5, free=0
        )
        bounds = wrong.active(HUBER)
    plan = plan_sound(bounds, schedule, BUDGET, value_bound=1.0)
    X = np.full((1, 41, 1), 1 / np.sqrt(2))
    received = np.zeros((1, 16, 41))
    received[:, :, 1:21:2], received[:, :, 2:21:2] = 1e3, -1e3
    received[:, :-1, 21::2], received[:, :-1, 22::2] = 1e3, -1e3
    first, second = (
        lattice(active_releases(X, y, received, setting, HUBER), 2.0**plan.exponent)
        for y in flipped_label(41)
    )
    return Case(plan.mu, 0.01, first, second, plan.ratio).evidence(runs, KEY)


def scores(setting: Setting, received: np.ndarray, grid: float, skipped: frozenset[int]) -> Case:
    """A passive party's releases when row 0 turns around; the claim and the noise are missing."""
    X = np.ones((1, setting.rows, 1))
    other = X.copy()
    other[0, 0] = -1.0
    first, second = (
        lattice(passive_releases(rows, received, setting, skipped=skipped), grid)
        for rows in (X, other)
    )
    return Case(0.0, 0.01, first, second, 0.0)


def skipped_update_contracts(bug: bool, runs: int) -> Evidence:
    schedule = PublicSchedule((10, 10, 10), 1, 1.0)
    setting = Setting(schedule=schedule, penalty="l2", lam=0.9, alpha=0.0, radius=1.0, clip=20.0)
    bounds = PassiveBounds(radius=1.0, clip_received=20.0, rho=setting.rho(None), may_skip=not bug)
    plan = plan_sound(bounds, schedule, BUDGET, value_bound=1.0)
    received = np.zeros((1, 3, 30))
    received[0, 0, 0] = 20.0
    case = scores(setting, received, 2.0**plan.exponent, frozenset({1}))
    return Case(plan.mu, 0.01, case.first, case.second, plan.ratio).evidence(runs, KEY)


def clip_missing(bug: bool, runs: int) -> Evidence:
    schedule = PublicSchedule((4,), 2, 0.5)
    clip = 1e6 if bug else 1.0
    setting = Setting(schedule=schedule, penalty="none", lam=0.0, alpha=0.0, radius=5.0, clip=clip)
    bounds = PassiveBounds(radius=5.0, clip_received=1.0, rho=1.0)
    plan = plan_sound(bounds, schedule, BUDGET, value_bound=5.0)
    received = np.full((1, 2, 4), -1e3)
    case = scores(setting, received, 2.0**plan.exponent, frozenset())
    return Case(plan.mu, 0.01, case.first, case.second, plan.ratio).evidence(runs, KEY)


def grid_at_beta(bug: bool, runs: int) -> Evidence:
    # Received values put every other row on the border between two grid points.
    grid, setting = 0.25, plain((100,), 2, 0.1, 0.1)
    bounds = ActiveBounds(
        radius=0.1,
        residual_bound=1.0,
        smoothness=0.25,
        rho=1.0,
        rounding=0.0,
        own_release=family(LossSpec(name="logistic")).release_bound(0.1),
    )
    charged = 0.25 * grid if bug else grid
    total = profile(bounds, setting.schedule, grid=charged).total
    ratio = round_ratio(total / mu_of(10.0, 0.01) / grid)
    X, received = np.ones((1, 100, 1)), np.zeros((1, 2, 100))
    received[:, :, 1:] = np.log(0.625 / 0.375)  # the residual of label +1 is -0.375 there
    y = np.ones((1, 100))
    other = y.copy()
    other[0, 0] = -1.0
    # The common drift of the weights is public and taken out of the received values.
    drift = [
        active_releases(X, label, received, setting, LOGISTIC)[1][0, 1] for label in (y, other)
    ]
    middle = np.mean([np.log((1 + h) / -h) for h in drift]) - received[0, 1, 1]
    received[:, 1, 1:] -= middle
    first, second = (
        lattice(active_releases(X, label, received, setting, LOGISTIC), grid)
        for label in (y, other)
    )
    return Case(mu_of(10.0, 0.01), 0.01, first, second, ratio).evidence(runs, KEY)


def runs_that_left(bug: str | None) -> tuple[int, NoisePlan]:
    """How many runs of a quarter of the cap the ledger lets through."""
    setting = plain((5,), 1, 0.01, 5.0)
    quarter = epsilon_of(mu_of(10.0, 0.01) * 0.4999, 0.01)
    budget = Budget(epsilon=quarter, delta=0.01)
    plan = plan_sound(setting.active(HUBER), setting.schedule, budget, value_bound=1.0)
    ledger, left = Ledger.open(":memory:", "bank", LedgerSecret(bytes(32))), 0
    ledger.fix_cap("rows", BUDGET)
    for number in range(12):
        release = Mechanism("bank", f"run-{number}", KEY, {"residual": plan}).release(
            Unreleased(np.zeros(5)), "residual", 0, b"", last_round=-1
        )
        booked = ReleaseBooked(
            dataset="rows", run=f"run-{number}", event=release.event, digest=bytes(32)
        )
        reserve = RunReserved(
            dataset="rows",
            run=f"run-{number}",
            mu2_units=plan.spent.mu2_units,
            tau_units=plan.spent.tau_units,
            exact=False,
            fingerprint="",
        )
        if bug != "uncharged" or number > 0:
            try:
                ledger.reserve(reserve)
            except RefusedError:
                break
            ledger.book([booked])
            ledger.close_run("rows", f"run-{number}")
        left += 1
    return left, plan


def ledger_leaks(bug_name: str) -> Callable[[bool, int], Evidence]:
    def run(bug: bool, runs: int) -> Evidence:
        refunding = property(lambda self: Spent() if self.closed else HELD.fget(self))
        with mock.patch.object(
            RunAccount, "held", refunding if bug and bug_name == "refund" else HELD
        ):
            left, plan = runs_that_left(bug_name if bug else None)
        step = np.rint(1.0 / 2.0**plan.exponent)
        first, second = np.full(left, -step), np.full(left, step)
        return Case(mu_of(10.0, 0.01), 0.01, first, second, plan.ratio).evidence(runs, KEY)

    return run


HELD = RunAccount.held


def noise_reused(bug: bool, runs: int) -> Evidence:
    setting = plain((4, 4), 1, 0.01, 5.0)
    plan = plan_sound(setting.active(HUBER), setting.schedule, BUDGET, value_bound=1.0)
    X, received = np.ones((1, 8, 1)), np.zeros((1, 2, 8))
    pair = [active_releases(X, y, received, setting, HUBER) for y in flipped_label(8)]
    values = [lattice(releases, 2.0**plan.exponent).reshape(2, 4) for releases in pair]
    runs = min(runs, 1200)  # the real mechanism, one release at a time

    def short(seed: bytes, *address: bytes) -> bytes:
        return stream_key(seed, *address[:2])

    found = np.zeros((2, 2, runs))
    with mock.patch.object(mechanism_module, "stream_key", short if bug else stream_key):
        for side, releases in enumerate(pair):
            for number in range(runs):
                seed = (side * runs + number).to_bytes(32, "big")
                party = Mechanism("bank", "run", seed, {"residual": plan})
                seen = np.stack(
                    [
                        party.release(Unreleased(h[0]), "residual", t, b"", last_round=t - 1)
                        .tensor.array()
                        .astype(float)
                        for t, h in enumerate(releases)
                    ]
                )
                found[side, :, number] = _reuse_scores(seen, values)
    return Evidence(plan.mu, 0.01, found[0], found[1])


def _reuse_scores(seen: np.ndarray, values: list[np.ndarray]) -> tuple[float, float]:
    """Likelihood ratio, and how well each data set explains the difference of two releases."""
    likelihood = ((seen - (values[0] + values[1]) / 2) * (values[1] - values[0])).sum()
    gap = [np.abs((seen[0] - seen[1]) - (v[0] - v[1])).sum() for v in values]
    return float(likelihood), float(gap[0] - gap[1])


def float_noise(bug: bool, runs: int) -> Evidence:
    budget = Budget(epsilon=1.0, delta=0.01)
    setting = plain((5,), 1, 0.01, 5.0)
    plan = plan_sound(setting.active(HUBER), setting.schedule, budget, value_bound=1.0)
    grid = 2.0**plan.exponent
    if not bug:
        case = Case(plan.mu, 0.01, np.zeros(1), np.array([1.0 / grid]), plan.ratio)
        return case.evidence(runs, KEY)
    rng = np.random.default_rng(1)
    # The residual is 1 on the first data set and 0 on the second. Near zero a float keeps bits that
    # one plus noise cannot have.
    seen = np.stack(
        [1.0 + plan.noise_std * rng.normal(size=runs), plan.noise_std * rng.normal(size=runs)]
    )
    fine = (np.rint(seen * 2.0**53) != seen * 2.0**53).astype(float)
    found = np.stack([-seen, fine])
    return Evidence(plan.mu, 0.01, found[:, 0], found[:, 1])


def whole_run(bug: bool, runs: int) -> Evidence:
    """Both parties with noise: the attacker is the active one and keeps the whole transcript."""
    assert not bug
    rows, epochs = 12, 4
    schedule = PublicSchedule((rows,), epochs, 2.0)
    setting = Setting(schedule=schedule, penalty="l2", lam=0.05, alpha=0.0, radius=2.0, clip=2.0)
    plan = plan_sound(setting.passive(), schedule, BUDGET, value_bound=2.0)
    grid, rng = 2.0**plan.exponent, np.random.default_rng(9)
    X = np.ones((1, rows, 1))
    other = X.copy()
    other[0, 0] = -1.0
    found = []
    for side, data in enumerate((X, other)):
        received, seen = np.zeros((runs, epochs, rows)), []
        for t in range(epochs):
            score = passive_releases(np.repeat(data, runs, axis=0), received, setting)[t]
            key = KEY[:30] + bytes([side, t])
            noise = ladder(plan.ratio).sample(score.size, key).reshape(score.shape)
            seen.append(np.rint(score / grid) + noise)
            # An active party that learns, with its own noise: row 0 always pulls the same way.
            received[:, t] = -1.0 / (1.0 + np.exp(seen[t] * grid / 20)) + rng.normal(
                size=score.shape
            )
        found.append(_transcript_scores(seen, received, (X, other), setting, grid))
    return Evidence(plan.mu, 0.01, found[0][None], found[1][None])


def _transcript_scores(
    seen: list[np.ndarray],
    received: np.ndarray,
    data: tuple[np.ndarray, np.ndarray],
    setting: Setting,
    grid: float,
) -> np.ndarray:
    """Likelihood ratio of each run: given what was sent, both data sets' releases are known."""
    runs = len(received)
    first, second = (passive_releases(np.repeat(X, runs, axis=0), received, setting) for X in data)
    total = np.zeros(runs)
    for values, a, b in zip(seen, first, second, strict=True):
        low, high = np.rint(a / grid), np.rint(b / grid)
        total += ((values - (low + high) / 2) * (high - low)).sum(axis=1)
    return total


# Sound runs without a bug: the first two come close to the claim.
SOUND: dict[str, Callable[[bool, int], Evidence]] = {
    "active, a label flips": honest,
    "passive, a row turns around": skipped_update_contracts,
    "a whole run with noise on both sides": whole_run,
}

# The thirteen planted bugs.
SCENARIOS: dict[str, Callable[[bool, int], Evidence]] = {
    "noise 5 % too small": narrower_noise(0.95),
    "one release uncharged": ledger_leaks("uncharged"),
    "noise reused": noise_reused,
    "clip of the received values missing": clip_missing,
    "sensitivity halved": narrower_noise(0.5),
    "float noise": float_noise,
    "classical formula at epsilon 20": classical_noise,
    "a refund": ledger_leaks("refund"),
    "active grid charged at beta": grid_at_beta,
    "contraction credited for a skipped update": skipped_update_contracts,
    "intercept with rho < 1": intercept_contracts,
    "a row twice in a batch": row_twice,
    "residual released after the local steps": released_late,
}
