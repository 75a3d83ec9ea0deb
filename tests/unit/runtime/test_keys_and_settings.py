"""Key files and settings files: written once, read back as they were, refused where open."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.runtime import keys
from hdpvfl_mq.runtime.settings import check_settings, dump_settings, load_settings
from schemas.base import Strict
from schemas.config import RunManifest
from schemas.privacy import Budget
from tests.federation import manifest, policy


def test_keys_are_made_once_for_their_owner_only(tmp_path):
    made = keys.make_keys(tmp_path / "bank")
    for name in ("sign.key", "curve.key"):
        assert (tmp_path / "bank" / name).stat().st_mode & 0o777 == 0o600
    again = keys.load_keys(tmp_path / "bank")
    assert (again.verify_hex, again.curve_public) == (made.verify_hex, made.curve_public)
    with pytest.raises(OperatorError, match="holds keys already"):
        keys.make_keys(tmp_path / "bank")


def test_secrets_do_not_show(tmp_path):
    made = keys.make_keys(tmp_path / "bank")
    assert made.curve_secret.hex() not in repr(made)
    assert bytes(made.signing).hex() not in repr(made)
    public = (tmp_path / "bank" / "public.toml").read_text()
    assert made.curve_secret.hex() not in public
    assert bytes(made.signing).hex() not in public


def test_a_secret_is_never_replaced(tmp_path):
    path = tmp_path / "s" / "run.secret"
    keys.write_secret(path, bytes(48))
    with pytest.raises(FileExistsError):
        keys.write_secret(path, bytes([1]) * 48)
    assert keys.read_secret(path, 48) == bytes(48)
    assert [p.name for p in path.parent.iterdir()] == ["run.secret"]


def test_a_process_killed_while_it_writes_a_secret_leaves_none(tmp_path, monkeypatch):
    """Bug: an empty secret file was left, and the party could never start again."""
    path = tmp_path / "run.secret"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            keys.write_secret(path, bytes(48))
    assert not path.exists()
    keys.write_secret(path, bytes(48))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
def test_an_open_secret_is_refused_with_the_remedy(tmp_path, mode):
    path = tmp_path / "sign.key"
    keys.write_secret(path, bytes(32))
    path.chmod(mode)
    with pytest.raises(OperatorError, match="chmod 600"):
        keys.read_secret(path, 32)


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "00" * 33])
def test_a_broken_secret_is_refused_without_showing_it(tmp_path, text):
    path = tmp_path / "sign.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(OperatorError) as refused:
        keys.read_secret(path, 32)
    assert not text or text not in str(refused.value)


MANIFESTS = [
    manifest(),
    manifest(guarantee="none", budget=None),
    manifest(absence="last", deadline_s=5.5),
]


@pytest.mark.parametrize("model", [*MANIFESTS, policy(), policy(peers=("bank",))])
def test_settings_survive_their_file(tmp_path, model):
    path = tmp_path / "settings.toml"
    path.write_text(dump_settings(model))
    assert load_settings(type(model), path) == model


def test_a_control_character_survives_a_file():
    """Bug: JSON leaves DEL as it is, TOML forbids it."""

    class Model(Strict):
        a: str

    assert tomllib.loads(dump_settings(Model(a="x\x7fy")))["a"] == "x\x7fy"


@settings(deadline=None)  # machines that run tests are busy
@given(st.text(max_size=30), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
def test_any_value_survives_a_file(text, integer, number):
    class Model(Strict):
        text: str
        integer: int
        number: float

    if number in (float("inf"), float("-inf")):
        return
    model = Model(text=text, integer=integer, number=number)
    assert Model.model_validate(tomllib.loads(dump_settings(model))) == model


def test_all_mistakes_are_named_at_once():
    values = {"epsilon": -1.0, "delta": 3.0, "colour": 1}
    with pytest.raises(SettingsError) as wrong:
        check_settings(Budget, values, "budget.toml")
    for word in ("budget.toml", "epsilon", "delta", "colour"):
        assert word in str(wrong.value)


def test_a_folder_is_no_settings_file(tmp_path):
    with pytest.raises(SettingsError, match="give the path of a manifest"):
        load_settings(RunManifest, Path(tmp_path))
