"""Bounded noise, disclosed and held-out rows as options of `hdpvfl up`, and their policies."""

from __future__ import annotations

import pytest

from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.prepare import DEMO_SLOTS, _policy
from hdpvfl_mq.errors import SettingsError


def test_options_enter_the_manifest_and_the_demos_policies(tmp_path):
    options = UpOptions(
        dataset="breast", out=tmp_path, noise="bounded", disclosed_rows=20, held_out_rows=10
    )
    demo = prepare_demo(options)
    method, policy = demo.manifest.method, _policy(demo)
    assert (method.noise, method.disclosed_rows, method.held_out_rows) == ("bounded", 20, 10)
    assert "bounded" in policy.noises
    assert policy.pure_slots[0] == 1.0
    assert policy.disclosed_rows_max == DEMO_SLOTS * 30


def test_by_default_a_policy_names_none_of_them(tmp_path):
    policy = _policy(prepare_demo(UpOptions(dataset="breast", out=tmp_path)))
    assert (policy.noises, policy.pure_slots, policy.disclosed_rows_max) == (("gaussian",), (), 0)


def test_descent_has_no_such_options(tmp_path):
    with pytest.raises(SettingsError, match="noise"):
        prepare_demo(UpOptions(dataset="breast", out=tmp_path, noise="bounded", epochs=3))
