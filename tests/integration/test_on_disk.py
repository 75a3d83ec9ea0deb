"""Rows larger than memory: mapped from files without a name, and the same model as in memory."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.glm import reorder
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from parties import alignment
from parties.phases import Accepted, Agreeing
from parties.process.build import load_assets
from schemas.config import BrokerSettings, PartySettings, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.privacy import LedgerHead
from schemas.records import LedgerStanding
from tests.integration.processes import Processes, fields_of, processes
from tests.integration.test_same_as_simulated import Simulated

ROWS, COLUMNS = 1_000_000, 100
BATCH_ROWS = 10_000
FEW_ROWS = (70_000, 105_000)  # more than a chunk, so that a chunk does not grow
TRACED_BYTES_A_ROW = 10.0  # 4 are for the alignment that is kept, and 4 for making it


def put_on_disk(real: Processes) -> None:
    for party in real.demo.parties:
        data = load_settings(PartySettings, real.demo.settings(party)).data
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
        settings = load_settings(PartySettings, real.demo.settings("passive-1"))
        own = load_assets(settings, load_keys(Path(settings.keys)))
        block = own.allocate((5, 2), own.data.X.dtype)
    for array in (own.data.X, block):
        assert isinstance(array, np.memmap)
        assert array.dtype == np.float32
    assert list((tmp_path / "state" / "passive-1" / "rows").iterdir()) == []


def give_rows(real: Processes, *, rows: int, columns: int) -> None:
    """Every party gets an Arrow file, in an order of its own."""
    for seed, party in enumerate(real.demo.parties):
        path, is_active = real.folder / f"{party}.arrow", party == "active"
        dice = np.random.default_rng(seed)
        names = [f"c{number}" for number in range(columns)]
        kinds = [("id", pa.int64()), *([("y", pa.float32())] if is_active else [])]
        schema = pa.schema([*kinds, *((name, pa.float32()) for name in names)])
        order = dice.permutation(rows)
        with ipc.new_file(path, schema) as sink:
            for start in range(0, rows, BATCH_ROWS):
                ids = order[start : start + BATCH_ROWS]
                cells = dice.standard_normal((columns, len(ids)), dtype=np.float32)
                label = [(cells[0] > 0).astype(np.float32)] if is_active else []
                sink.write_batch(pa.record_batch([ids, *label, *cells], schema=schema))
        label = "y" if is_active else None
        data = DataSettings(file=str(path), label_column=label, on_disk=True)
        real.change(party, data=data, patience_s=3600.0)


def traced_peak(real: Processes, party: str, rows: int) -> int:
    """Bytes the interpreter and numpy took at most, from the file to rows ready for rounds."""
    settings = load_settings(PartySettings, real.demo.settings(party))
    broker = load_settings(BrokerSettings, real.demo.settings(COORDINATOR))
    manifest, keys = (
        load_settings(RunManifest, Path(broker.manifest)),
        load_keys(Path(settings.keys)),
    )
    tracemalloc.start()
    own = load_assets(settings, keys)
    standing = LedgerStanding(head=LedgerHead(sequence=0, digest=bytes(32)), mu2_units_free=0)
    state = Accepted(manifest=manifest, standing=standing)
    found = alignment._Found(np.arange(rows), bytes(32), bytes(32))
    after, effects = alignment._found(own, state, found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(after, Agreeing)
    assert after.setup.plan.rows == rows
    assert effects
    return peak


def test_more_rows_need_hardly_more_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reorder, "RUN_NUMBERS", 2**16)  # else all rows are in the first run
    peaks = []
    with processes(tmp_path, passives=1, guarantee="none", batch=1000) as real:
        for rows in FEW_ROWS:
            give_rows(real, rows=rows, columns=40)
            peaks.append(traced_peak(real, "active", rows))
    a_row = (peaks[1] - peaks[0]) / (FEW_ROWS[1] - FEW_ROWS[0])
    assert a_row < TRACED_BYTES_A_ROW, f"{a_row:.1f} bytes a row, peaks {peaks}"


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
@pytest.mark.parametrize(
    ("case", "anonymous_mb"),
    [
        ({"guarantee": "none", "epochs": 3, "batch": 100_000}, 240.0),
        ({}, 240.0),  # the one batch has all rows
    ],
)
def test_a_million_rows_need_little_memory(tmp_path, case, anonymous_mb):
    peaks: dict[str, dict[str, float]] = {}
    with processes(tmp_path, passives=1, **case) as real:
        give_rows(real, rows=ROWS, columns=COLUMNS)
        began, real.fresh = time.monotonic(), True
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
        assert peaks[party]["RssAnon"] < anonymous_mb
