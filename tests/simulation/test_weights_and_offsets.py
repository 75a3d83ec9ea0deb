"""Sample weights and exposure at the active party, through a whole federation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.recommend import recommend
from parties.common_rows import response_of
from schemas.data import DataSettings
from schemas.methods import ActiveSide, Descent, PassiveSide, PrivateModel
from schemas.model import LossSpec, PenaltySpec
from schemas.privacy import Budget
from tests.federation import Federation, manifest, tables

BUDGET = Budget(epsilon=1.0, delta=0.01)


class Exposed(Federation):
    """Claims of policies that were watched for different times and count differently."""

    def settings(self, party: str) -> DataSettings:
        if party != "bank":
            return DataSettings()
        columns = {"weight_column": "weight", "offset_column": "log_years"}
        kind = FAMILIES[self.manifest.loss.name].label_kind
        return DataSettings(label_column="y", label_kind=kind, **columns)


def policies(rows: int = 150) -> dict[str, Table]:
    people, dice = tables(rows=rows, columns=2), np.random.default_rng(17)
    features = {p: [n for n in t.names if n not in ("id", "y")] for p, t in people.items()}
    by_id = np.zeros((rows, 6))
    for number, (party, names) in enumerate(features.items()):
        for place, name in enumerate(names):
            by_id[people[party]["id"], 2 * number + place] = people[party][name]
    years, weight = dice.uniform(0.4, 2.5, rows), dice.integers(1, 4, rows).astype(float)
    rate = np.exp(by_id @ np.array([0.3, -0.2, 0.25, 0.1, -0.3, 0.2]) - 0.2)
    claims = dice.poisson(years * rate).astype(float)
    bank = people["bank"]
    ids = bank["id"]
    sides = {"y": claims[ids], "weight": weight[ids], "log_years": np.log(years)[ids]}
    people["bank"] = Table.of(
        {"id": ids, **{name: bank[name] for name in features["bank"]}, **sides}
    )
    return people


def joined(people: dict[str, Table]) -> dict[str, np.ndarray]:
    """All columns of the common rows, in the order of ids: what somebody with all data has."""
    common = sorted(set.intersection(*(set(t["id"].tolist()) for t in people.values())))
    columns = {}
    for table in people.values():
        place = {key: row for row, key in enumerate(table["id"].tolist())}
        rows = [place[key] for key in common]
        columns |= {name: np.asarray(table[name])[rows] for name in table.names if name != "id"}
    return columns


LOSS = LossSpec(name="poisson", residual_clip=1e9, label_high=1e9, weight_max=3.0, offset_max=1.0)


def test_without_noise_it_is_the_weighted_model_with_exposure_of_statsmodels():
    api = pytest.importorskip("statsmodels.genmod.generalized_linear_model")
    people = policies()
    side = {"step_size": 0.15, "weight_norm": 100.0}
    federation = Exposed(
        manifest(
            guarantee="none",
            budget=None,
            scale_rows=False,
            loss=LOSS,
            penalty=PenaltySpec(name="none"),
            epochs=120,
            batch_rows=1000,
            active=ActiveSide(**side),
            passive=PassiveSide(**side),
        ),
        people,
    )
    weights = federation.weights(federation.simulate())
    assert set(federation.outcomes.values()) == {"completed"}
    columns = joined(people)
    names = [n for n in columns if n not in ("y", "weight", "log_years")]
    design = np.column_stack([*(columns[name] for name in names), np.ones(len(columns["y"]))])
    fitted = api.GLM(
        columns["y"],
        design,
        family=api.families.Poisson(),
        freq_weights=columns["weight"],
        exposure=np.exp(columns["log_years"]),
    ).fit(tol=1e-12)
    ours = np.concatenate(
        [weights["bank"][:-1], weights["shop"], weights["telco"], weights["bank"][-1:]]
    )
    assert np.linalg.norm(ours - fitted.params) < 1e-3 * np.linalg.norm(fitted.params)
    plain = api.GLM(columns["y"], design, family=api.families.Poisson()).fit()
    assert np.linalg.norm(plain.params - fitted.params) > 0.1  # both of them matter here


def sensitivity(**changes: float) -> float:
    """The active party's, over 400 rows of a logistic run."""
    loss = LossSpec(name="logistic", **changes)
    return plan_run(manifest(loss=loss), 400).active_noise.sensitivity


def test_noise_covers_the_declared_weights_and_offsets():
    """Of descent; the private model releases labels in units of their range times the weight."""
    plain = sensitivity()
    assert sensitivity(weight_max=2.0) > 1.8 * plain
    assert sensitivity(offset_max=1.0) > plain


@pytest.mark.parametrize("method", [Descent, PrivateModel])
def test_a_sound_run_takes_weights_and_offsets_beyond_what_is_declared_as_the_declared(method):
    loss = LossSpec(name="poisson", residual_clip=3.0, weight_max=2.0, offset_max=0.5)
    run = manifest(
        loss=loss,
        active=ActiveSide(step_size=0.05),
        passive=PassiveSide(step_size=0.05, received_clip=1.0),
    )
    if method is PrivateModel:
        base = recommend("test-run", ("bank", ("shop", "telco")), "sound", BUDGET, loss)
        run = type(run)(**{**dict(base), "alignment": run.alignment})
    people = policies()
    bank = people["bank"]
    fields = {name: bank[name] for name in bank.names}
    fields["weight"] = np.minimum(bank["weight"], 2.0)
    fields["log_years"] = np.clip(bank["log_years"], -0.5, 0.5)
    results = []
    for table in (bank, Table.of(fields)):
        federation = Exposed(run, {**people, "bank": table})
        simulation = federation.simulate()
        assert set(federation.outcomes.values()) == {"completed"}
        node = simulation.nodes["bank"]
        role: Any = node.role
        response = response_of(role.own, node.state.trained.setup)
        results.append((response._weights, response._offset))
        assert simulation.nodes["bank"].state.trained.setup.plan.family.residual_bound == 6.0
    for declared, beyond in zip(*results, strict=True):
        np.testing.assert_array_equal(declared, beyond)
