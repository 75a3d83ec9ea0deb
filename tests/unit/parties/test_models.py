"""Model files: read back as written, and refused with the reason."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hdpvfl_mq.errors import OperatorError, SettingsError
from parties.process.models import read_model, scoring_settings, write_model
from schemas.config import PartySettings, Peer
from schemas.data import DataSettings
from tests.federation import Federation, manifest, tables


@pytest.fixture
def written(tmp_path):
    federation = Federation(manifest(), tables(60))
    simulation = federation.simulate()
    path = tmp_path / "model.json"
    write_model(path, federation.assets("shop"), simulation.nodes["shop"].state)
    return path, federation.weights(simulation)["shop"]


def settings(**changes) -> PartySettings:
    plain = {
        "party": "shop",
        "role": "passive",
        "run": "scores",
        "broker": "tcp://127.0.0.1:7700",
        "broker_curve_key": "0" * 64,
        "keys": "keys",
        "policy": "policy.toml",
        "data": DataSettings(file="rows.csv"),
        "peers": tuple(
            Peer(party=p, role=r, verify_key="0" * 64)
            for p, r in (("bank", "active"), ("coordinator", "coordinator"))
        ),
    }
    return PartySettings(**{**plain, **changes})


def test_weights_come_back_to_the_bit(written):
    path, weights = written
    model = read_model(path, settings())
    assert np.array_equal(model.weights, weights)
    assert model.rows == 58
    assert model.dataset == "people"
    assert model.manifest == manifest()


def test_another_partys_model_is_refused(written):
    with pytest.raises(SettingsError, match="belongs to another party, role"):
        read_model(written[0], settings(party="telco"))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"party": "shop"}', "\x00"])
def test_a_file_that_is_no_model_is_refused(tmp_path, text):
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match="not a model of this version"):
        read_model(path, settings())


def test_a_model_without_its_rows_is_of_another_version(written):
    stored = json.loads(written[0].read_text())
    del stored["rows"]
    written[0].write_text(json.dumps(stored))
    with pytest.raises(SettingsError, match="not a model of this version"):
        read_model(written[0], settings())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(OperatorError, match="No such file"):
        read_model(tmp_path / "none.json", settings())


def test_rows_to_score_are_read_as_the_models_rows_were(written):
    model = read_model(written[0], settings())
    given = DataSettings(file="new.csv", id_columns=("customer",))
    found = scoring_settings(model, given)
    assert found.rules == model.data.rules
    assert (found.file, found.id_columns) == ("new.csv", ("customer",))
    with pytest.raises(SettingsError, match=r"data.columns: with a model only file"):
        scoring_settings(model, DataSettings(file="new.csv", columns=("a",)))


WRONG = {
    "another version": ({"format": 99}, "another party, role or version"),
    "not a number": ({"weights": [float("nan"), 0.0, 0.0]}, "not a model of this version"),
    "too few": ({"weights": [0.1]}, "do not fit its columns"),
    "too long": ({"weights": [1e3, 0.0, 0.0]}, "beyond the norm"),
    "no party": ({"party": None}, "another party, role or version"),
}


@pytest.mark.parametrize("name", WRONG)
def test_weights_that_no_training_can_have_left_are_refused(written, name):
    changes, words = WRONG[name]
    stored = {**json.loads(written[0].read_text()), **changes}
    written[0].write_text(json.dumps(stored))
    with pytest.raises(SettingsError, match=words):
        read_model(written[0], settings())
