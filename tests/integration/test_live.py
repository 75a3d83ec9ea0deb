"""A live federation from Python: an estimator says what is trained, services do it, we watch."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import hdpvfl_mq
from hdpvfl_mq.app import cli
from hdpvfl_mq.app.live import Federation, Wanted
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.errors import NetworkError, RefusedError, SettingsError
from schemas.config import RunManifest
from tests.integration.standing import standing, until


async def test_an_estimator_is_trained_by_the_services(tmp_path):
    async with standing(tmp_path) as services:
        path = services.demo.service("active")
        await until(lambda: services.live["active"].link.is_connected, "the connection")
        federation = await asyncio.to_thread(Federation.connect, path)
        assert federation.settings.party == "active"
        assert repr(federation).startswith("Federation('first.fed', party='active'")
        wanted = hdpvfl_mq.VFLClassifier(epsilon=0.5, delta=0.01, disclosed_rows=0)
        run = await asyncio.to_thread(federation.fit, wanted, run="live")
        seen = [progress async for progress in run.progress()]
        assert seen[-1].is_over
        assert seen[-1].share == 1.0
        assert "completed" in str(seen[-1])
        assert "<progress" in seen[0]._repr_html_()
        model = await asyncio.to_thread(run.wait)
        assert model["weights"] == services.model("active", "live")
        assert run.manifest.budget.epsilon == 0.5
        assert repr(run) == "LiveRun('live', federation='first.fed')"
        assert repr(await asyncio.to_thread(run.model)) == "LiveModel('live', loss='logistic')"
        lasso = federation.manifest(Wanted(penalty="l1", partners=("passive-1",), delta=0.01))
        assert lasso.method.kind == "descent"  # the private model has an l2 prior only
        later = await asyncio.to_thread(federation.run, "live")
        opened = {**dict(run.manifest), "wire": 2}  # known when the run opens, not when proposed
        assert later.manifest == RunManifest(**opened)
        assert (await asyncio.to_thread(federation.again, "live")).run == "live-2"


async def test_a_training_says_when_delta_is_above_one_over_the_rows(tmp_path, capsys):
    async with standing(tmp_path) as services:
        await until(lambda: services.live["active"].link.is_connected, "the connection")
        path = str(services.demo.service("active"))
        asked = [
            "train",
            "--settings",
            path,
            "--run",
            "loose",
            "--delta",
            "0.01",
            "--rows-min",
            "10",
        ]
        assert await asyncio.to_thread(cli.main, asked) == 0
        assert "delta = 0.01 is more than 1 / rows" in capsys.readouterr().out.replace("\n", " ")


async def test_a_training_on_hosts_holds_rows_out_and_says_what_partners_bring(tmp_path, capsys):
    """Bug: 'hdpvfl train' could not hold rows out, and only model.json had the result."""
    async with standing(tmp_path, delta=0.01) as services:
        services.change_policy(disclosed_rows_max=150)
        await until(lambda: services.live["active"].link.is_connected, "the connection")
        words = ["train", "--settings", str(services.demo.service("active")), "--run", "held"]
        words += ["--delta", "0.01", "--rows-min", "10", "--held-out-rows", "50"]
        words += ["--disclosed-rows", "100"]
        assert await asyncio.to_thread(cli.main, words) == 0
        model = services.stored_model("active", "held")
        method = model["manifest"]["method"]
        assert (method["held_out_rows"], method["disclosed_rows"]) == (50, 100)
        shown = capsys.readouterr().out.replace("\n", " ")
        assert f"partners {'used' if model['joint'] else 'not used'}:" in shown
        assert "held out 50 rows, with scores as they left in training: accuracy " in shown
        assert f"auc {model['held_out']['auc']:.4f}" in shown
        if model["joint"]:
            assert f"passive-1: coefficient {model['coefficients']['passive-1']:.2f}" in shown


async def test_a_refusal_reaches_the_program_with_its_reason(tmp_path):
    async with standing(tmp_path) as services:
        services.change_policy(run_epsilon_max=0.1)
        await until(lambda: services.live["active"].link.is_connected, "the connection")
        federation = await asyncio.to_thread(Federation.connect, services.demo.service("active"))
        run = await asyncio.to_thread(
            federation.fit, hdpvfl_mq.VFLClassifier(delta=0.01), run="dear"
        )
        with pytest.raises(RefusedError, match="epsilon"):
            await asyncio.to_thread(run.wait)


async def test_what_cannot_be_proposed_is_said_before_anybody_is_asked(tmp_path):
    async with standing(tmp_path) as services:
        path = services.demo.service("active")
        federation = await asyncio.to_thread(Federation.connect, path)
        for wrong in (
            hdpvfl_mq.VFLClassifier(columns=[["a"], ["b"]]),
            hdpvfl_mq.VFLClassifier(epsilon=-1.0),
            hdpvfl_mq.VFLClassifier(penalty="l7"),
            hdpvfl_mq.VFLClassifier(guarantee="sounds"),
            hdpvfl_mq.VFLClassifier(guarantee="none", disclosed_rows=10),
        ):
            with pytest.raises(SettingsError):
                await asyncio.to_thread(federation.fit, wrong)
        assert (await asyncio.to_thread(federation.status))["runs"] == {}


async def test_a_service_that_does_not_run_is_named(tmp_path):
    async with standing(tmp_path, start=False) as services:
        with pytest.raises(NetworkError, match="hdpvfl party"):
            Federation.connect(services.demo.service("active"))


async def test_a_live_model_predicts_the_rows_it_is_given(tmp_path):
    async with standing(tmp_path, start=False, dataset="breast", delta=0.01) as services:
        services.change_policy(scoring="disclosed", queries_max=10, rows_min=2)
        await services.start()
        await until(lambda: services.live["active"].link.is_connected, "the connection")
        federation = await asyncio.to_thread(Federation.connect, services.demo.service("active"))
        run = await asyncio.to_thread(
            federation.fit, hdpvfl_mq.VFLClassifier(delta=0.01), run="live"
        )
        model = await asyncio.to_thread(run.model)
        table = load_table(services.demo.rows("active", "train"))
        some = table.take(np.arange(40)[::-1])  # another order than the file's
        frame = {name: some.arrow(name).to_pylist() for name in some.names}
        frame["id"][3] = "900000001"  # nobody knows this person
        before = await asyncio.to_thread(federation.status)
        proba = await asyncio.to_thread(model.predict_proba, frame)
        assert proba.shape == (40, 2)
        assert np.flatnonzero(np.isnan(proba[:, 1])).tolist() == [3]
        known = ~np.isnan(proba[:, 1])
        np.testing.assert_allclose(proba.sum(axis=1)[known], 1.0)
        latest = await asyncio.to_thread(federation.model)
        classes = await asyncio.to_thread(latest.predict, frame)
        assert classes[3] is None
        assert [each == 1 for each in classes[known]] == (proba[known, 1] > 0.5).tolist()
        scored = await asyncio.to_thread(model.scores)  # everybody in the party's own file
        found = dict(zip(scored["id"].to_pylist(), scored["theta"].to_pylist(), strict=True))
        theta = np.array([found[frame["id"][n]] for n in np.flatnonzero(known)])
        np.testing.assert_allclose(proba[known, 1], 1.0 / (1.0 + np.exp(-theta)))
        after = await asyncio.to_thread(federation.status)
        assert after["budget"]["epsilon_spent"] == before["budget"]["epsilon_spent"]
        assert list((tmp_path / "state" / "to-score").iterdir()) == []  # no rows are left behind


async def test_a_policy_that_scores_nobody_is_an_error_with_its_reason(tmp_path, capsys):
    async with standing(tmp_path, dataset="breast", delta=0.01) as services:
        services.change_policy(rows_min=2, scoring="none")
        await until(lambda: services.live["active"].link.is_connected, "the connection")
        federation = await asyncio.to_thread(Federation.connect, services.demo.service("active"))
        run = await asyncio.to_thread(
            federation.fit, hdpvfl_mq.VFLClassifier(delta=0.01), run="live"
        )
        shown = await asyncio.to_thread(run.show)  # lines, as this is no notebook
        assert shown["run"] == "live"
        assert "completed" in capsys.readouterr().out
        model = await asyncio.to_thread(run.model)
        with pytest.raises(RefusedError, match="scoring"):
            await asyncio.to_thread(model.predict)
