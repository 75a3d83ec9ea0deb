"""kill -9 of real processes in the middle of entity resolution: started again, the same result."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from hdpvfl_mq.runtime import status
from hdpvfl_mq.runtime.settings import dump_settings, load_settings
from parties.process.alignment_store import _read
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from tests.integration.processes import Processes, fields_of, processes, wait_for

# 7,500 ids a party and two buckets: long enough to be killed in, short enough to wait for.
DEMO = {"dataset": "meps_overlap", "guarantee": "none", "epochs": 2, "passives": 1}


def set_alignment(run: Processes, **changes) -> None:
    """Rewrite how the manifest has entities resolved."""
    path = run.demo.settings("manifest")
    manifest = load_settings(RunManifest, path)
    alignment = type(manifest.alignment)(**{**dict(manifest.alignment), **changes})
    path.write_text(dump_settings(RunManifest(**{**fields_of(manifest), "alignment": alignment})))


def results(run: Processes) -> dict[str, tuple]:
    """Every party's weights and common rows."""
    found = {}
    for party in run.demo.parties:
        model = json.loads((run.demo.folder / party / "model.json").read_text())
        (kept,) = (run.state / party / "alignments").glob("*.alignment")
        found[party] = (model["weights"], _read(kept).positions.array().tolist())
    return found


def blocks_done(run: Processes, party: str) -> int:
    fields = status.read(run.demo.folder / party / "status.json")
    return fields["align"][0] if fields.get("phase") == "aligning" else 0


def kill_in_the_middle(run: Processes, victim: str) -> None:
    """Once some blocks have gone, and not before the one that was started last has got as far."""
    watched = run.demo.parties[0] if victim == COORDINATOR else victim
    wait_for(lambda: blocks_done(run, watched) > 0, f"resolution at {watched}")
    run.children[victim].kill()
    assert run.children[victim].wait() == -9
    assert blocks_done(run, watched) > 0, "killed too late"
    said = run.demo.folder / victim / "status.json"
    said.unlink(missing_ok=True)  # what the killed process said counts no more
    run.start(victim)


@cache
def calm(folder: Path, method: str):
    with processes(folder / f"calm-{method}", secrets=True, **DEMO) as run:
        set_alignment(run, method=method)
        run.start()
        run.end()
        found = results(run)
    rows = [len(rows) for _, rows in found.values()]
    tables = (run.demo.rows(party, "train").read_text().splitlines()[1:] for party in found)
    plain = set.intersection(*({line.split(",")[0] for line in lines} for lines in tables))
    assert rows == [len(plain)] * len(rows)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("resolution")


def disturbed(folder: Path, method: str, victims: tuple[str, ...]):
    with processes(folder, secrets=True, **DEMO) as run:
        set_alignment(run, method=method)
        run.start()
        for victim in victims:
            kill_in_the_middle(run, victim)
        run.end()
        return results(run)


def test_every_process_killed_once_in_one_resolution(folder, tmp_path):
    victims = ("passive-1", "active", COORDINATOR)
    assert disturbed(tmp_path, "ecdh", victims) == calm(folder, "ecdh")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["active", "passive-1", COORDINATOR])
@pytest.mark.parametrize("times", [1, 3])
def test_each_process_killed(folder, tmp_path, victim, times):
    assert disturbed(tmp_path, "ecdh", (victim,) * times) == calm(folder, "ecdh")
