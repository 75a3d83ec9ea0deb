"""Scoring through services that stand: a file at once, single people, restarts, limits."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path

import pyarrow.parquet
import pytest

from hdpvfl_mq.app.cli import _parser
from hdpvfl_mq.app.commands import scores
from hdpvfl_mq.app.commands.audit import AuditOptions, gather
from hdpvfl_mq.app.scoring_manifest import manifest_of
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.errors import OperatorError
from schemas.config import AlignmentSpec, RunManifest
from tests.integration.standing import standing, until

LIMITS = {"scoring": "disclosed", "queries_max": 3, "rows_min": 2}


def scoring(services, run: str, model_run: str = "first-model", **method) -> dict:
    trained = RunManifest.model_validate({**services.demo.manifest.model_dump(), "run": model_run})
    made = manifest_of(trained, run, budget=None, **method)
    alignment = AlignmentSpec(**{**dict(made.alignment), "rows_min": 2})
    fields = {**dict(made), "alignment": alignment, "absent_after_s": 3600.0}
    return json.loads(RunManifest(**fields).model_dump_json())


async def trained(services) -> None:
    services.change_policy(**LIMITS)
    await services.start()
    await services.propose("first-model")
    await services.phase("first-model", "over")


async def test_a_file_is_scored_by_one_proposal_and_the_ledger_stays_as_it_is(tmp_path, capsys):
    async with standing(tmp_path, start=False, dataset="breast", delta=0.01) as services:
        await trained(services)
        before = (await services.ask("passive-1", "status"))["budget"]["epsilon_spent"]
        out = tmp_path / "scores.parquet"
        rows = str(services.demo.rows("active", "train"))
        for path in (out, tmp_path / "scores.csv"):
            words = ["predict", "--settings", services.demo.service("active"), "--rows", rows]
            options = _parser().parse_args([str(w) for w in (*words, "-o", path, "--json")])
            assert await asyncio.to_thread(scores.predict, options) == 0
        after = (await services.ask("passive-1", "status"))["budget"]["epsilon_spent"]
        assert after == before < 2.0
        table = pyarrow.parquet.read_table(out).to_pydict()
        with (tmp_path / "scores.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert [float(line["theta"]) for line in lines] == table["theta"]
        assert len(lines) > 300
        assert set(table["without"]) == {""}
        run = tmp_path / "runs" / "first-model-scores-1"
        verdicts = audit(gather(AuditOptions(run, ledgers=tmp_path / "state")))
        assert exit_code(verdicts) == 0, [v for v in verdicts if not v.passed]
        third = _parser().parse_args([str(w) for w in (*words, "-o", tmp_path / "third.csv")])
        for _ in range(2):  # the fourth question is one too many for everybody
            assert await asyncio.to_thread(scores.predict, third) == 0
        assert (
            "missing  passive-1, in some scores: policy.queries_max = 3" in capsys.readouterr().out
        )
        assert (tmp_path / "third.csv").read_text().splitlines()[1].endswith(',,,"passive-1"')


async def test_scores_of_descent_go_where_the_command_says(tmp_path):
    async with standing(tmp_path, dataset="breast", epochs=2, delta=0.01) as services:
        services.change_policy(rows_min=2)
        await services.propose("first-model")
        await services.phase("first-model", "over")
        out = tmp_path / "scores.parquet"
        words = ["predict", "--settings", services.demo.service("active"), "-o", out, "--json"]
        words += ["--delta", "0.01", "--epsilon", "0.5"]
        options = _parser().parse_args([str(word) for word in words])
        assert await asyncio.to_thread(scores.predict, options) == 0
        table = pyarrow.parquet.read_table(out)
        assert table.column_names == ["id", "theta", "prediction"]
        assert table.num_rows > 300


async def test_a_session_answers_single_people_until_their_limit_and_outlives_restarts(tmp_path):
    async with standing(tmp_path, start=False, dataset="breast", delta=0.01) as services:
        await trained(services)
        asked = {"manifest": scoring(services, "open", partner_away="without"), "session": True}
        await services.ask("active", "propose", **asked)
        await services.phase("open", "training")
        ids = some_ids(services.demo.rows("active", "train"))
        first = (await services.ask("active", "score", run="open", ids=ids[:1]))["scores"][0]
        assert first["without"] == {}
        again = await services.ask("active", "score", run="open", places=[first["place"]])
        assert again["scores"][0]["theta"] == first["theta"]
        await services.stop("passive-1", "active")
        await services.start("passive-1", "active")
        await services.phase("open", "training")
        third = (await services.ask("active", "score", run="open", ids=ids[:1]))["scores"][0]
        assert third["theta"] == first["theta"]
        fourth = (await services.ask("active", "score", run="open", ids=ids[:2]))["scores"]
        assert "policy.queries_max = 3" in fourth[0]["without"]["passive-1"]
        assert fourth[1]["without"] == {}
        with pytest.raises(OperatorError, match="not all of these ids"):
            await services.ask("active", "score", run="open", ids=["987654321"])
        with pytest.raises(OperatorError, match="places 0 to"):
            await services.ask("active", "score", run="open", places=[10**7])
        await services.ask("active", "end_session", run="open")
        seen = await services.phase("open", "over")
        assert {each["outcome"] for each in seen.values()} == {"completed"}


def some_ids(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["id"] for row in csv.DictReader(file)][:2]


async def test_a_partner_that_is_away_is_named_and_comes_back(tmp_path):
    async with standing(tmp_path, start=False, dataset="breast", delta=0.01) as services:
        await trained(services)
        method = {"partner_away": "without", "answer_within_s": 0.3}
        asked = {"manifest": scoring(services, "open", **method), "session": True}
        await services.ask("active", "propose", **asked)
        await services.phase("open", "training")

        async def scored(place: int) -> dict:
            return (await services.ask("active", "score", run="open", places=[place]))["scores"][0]

        whole = await scored(5)
        await services.stop("passive-1")
        alone = await scored(5)
        assert alone["without"] == {"passive-1": "it has not answered in time"}
        # The active party's own cross-validation may have left the partner out of the model.
        counts = services.stored_model("active", "first-model")["coefficients"]["passive-1"] != 0
        assert (alone["theta"] != whole["theta"]) == counts
        await services.start("passive-1")
        await services.phase("open", "training")
        node = services.live["active"].hosted["open"].node
        await until(lambda: not node.state.rounds.owed, "the late answer")
        assert (await scored(6))["without"] == {}
        await services.ask("active", "end_session", run="open")
        await services.phase("open", "over")
