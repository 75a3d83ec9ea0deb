"""Rows larger than memory: mapped from files without a name, and the same model as in memory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.profile import pin_threads
from hdpvfl_mq.runtime.settings import load
from parties.build import load_possession
from schemas.config import PartySettings
from schemas.data import DataSettings
from tests.integration.processes import Processes, fields_of, processes
from tests.integration.test_same_as_simulated import Simulated

ROWS, COLUMNS = 1_000_000, 100
ANONYMOUS_MB = 600.0  # of a party with a million rows; most of it are ids, see docs/data.md


def put_on_disk(real: Processes) -> None:
    for party in real.demo.parties:
        data = load(PartySettings, real.demo.settings(party)).data
        real.change(party, data=DataSettings(**{**fields_of(data), "on_disk": True}))


@pytest.mark.parametrize("case", [{"guarantee": "none", "epochs": 30}, {"epsilon": 1e3}])
def test_mapped_rows_give_the_model_of_rows_in_memory(tmp_path, case):
    _threads = pin_threads()
    with processes(tmp_path / "real", secrets=True, **case) as real:
        in_memory, _ = Simulated(real, tmp_path / "memory").run()
        put_on_disk(real)
        mapped, _ = Simulated(real, tmp_path / "mapped").run()
    for party, weights in in_memory.items():
        assert np.abs(weights).max() > 0.1
        if case.get("guarantee") == "none":  # under noise the last bit of a score changes all
            np.testing.assert_allclose(mapped[party], weights, rtol=1e-4, atol=1e-5)
        else:
            assert np.all(np.isfinite(mapped[party]))
            assert mapped[party] != weights


def test_rows_on_disk_have_no_name_and_are_float32(tmp_path):
    with processes(tmp_path) as real:
        put_on_disk(real)
        settings = load(PartySettings, real.demo.settings("passive-1"))
        own = load_possession(settings, load_keys(Path(settings.keys)))
        block = own.room((5, 2), own.data.X.dtype)
    for array in (own.data.X, block):
        assert isinstance(array, np.memmap)
        assert array.dtype == np.float32
    assert list((tmp_path / "state" / "passive-1" / "rows").iterdir()) == []


def write_rows(path: Path, seed: int, *, label: bool) -> None:
    """A .npy file with named fields, in the order of shuffled ids."""
    dice = np.random.default_rng(seed)
    names = [f"c{number}" for number in range(COLUMNS)]
    kinds = [("id", "<i8"), *([("y", "<f4")] if label else []), *((n, "<f4") for n in names)]
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(kinds), shape=(ROWS,))
    rows["id"] = dice.permutation(ROWS)
    for name in names:
        rows[name] = dice.standard_normal(ROWS, dtype=np.float32)
    if label:
        rows["y"] = rows["c0"] > 0
    rows.flush()


def memory_mb(pid: int) -> dict[str, float]:
    """Anonymous memory now and the peak of all resident pages, mapped files included."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines)
    wanted = ("RssAnon", "VmHWM")
    return {name: int(fields[name].split()[0]) / 1e3 for name in wanted if name in fields}


@pytest.mark.slow
@pytest.mark.parametrize("case", [{"guarantee": "none", "epochs": 3, "batch": 100_000}, {}])
def test_a_million_rows_need_little_memory(tmp_path, case):
    peaks: dict[str, dict[str, float]] = {}
    with processes(tmp_path, passives=1, **case) as real:
        for seed, party in enumerate(real.demo.parties):
            write_rows(tmp_path / f"{party}.npy", seed, label=party == "active")
            data = DataSettings(
                file=str(tmp_path / f"{party}.npy"),
                label_column="y" if party == "active" else None,
                on_disk=True,
            )
            real.change(party, data=data, patience_s=3600.0)
        began = time.monotonic()
        real.start()
        while any(child.poll() is None for child in real.children.values()):
            for name, child in real.children.items():
                for kind, value in memory_mb(child.pid).items():
                    kept = peaks.setdefault(name, {})
                    kept[kind] = max(kept.get(kind, 0.0), value)
            time.sleep(0.1)
        took_s = time.monotonic() - began
        codes = {name: child.wait() for name, child in real.children.items()}
        assert set(codes.values()) == {0}, {name: real.said(name) for name in codes}
        summary = {p: json.loads((real.demo.folder / p / "status.json").read_text()) for p in peaks}
    print(f"\n{case}: {took_s:.0f} s; peak MB {peaks}")
    for party in real.demo.parties:
        assert summary[party]["rows_common"] == ROWS
        assert peaks[party]["RssAnon"] < ANONYMOUS_MB
