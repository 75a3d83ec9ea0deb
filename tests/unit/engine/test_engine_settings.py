"""Which engine a party's settings may name, and how a cluster must be reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import LocalEngine
from hdpvfl_mq.errors import NetworkError, SettingsError
from parties.process.engines import engine_of
from schemas.engine import EngineSettings

TLS = {"ca": "ca.pem", "certificate": "own.pem", "key": "own.key"}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"workers": 2}, "workers"),
        ({"kind": "processes", "address": "tcp://127.0.0.1:8786"}, "dask"),
        ({"kind": "dask"}, "name the scheduler"),
        ({"kind": "dask", "address": "tcp://dask.example.org:8786"}, "in the clear"),
        ({"kind": "dask", "address": "tcp://127.0.0.1.example.org:8786"}, "in the clear"),
        ({"kind": "dask", "address": "tls://dask.example.org:8786"}, "all three"),
        ({"kind": "dask", "address": "tcp://127.0.0.1:8786", **TLS}, "tls://"),
    ],
)
def test_settings_that_do_not_fit_name_the_remedy(fields: dict[str, object], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        EngineSettings(**fields)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_cluster_on_this_host_needs_no_certificates(host: str) -> None:
    assert EngineSettings(kind="dask", address=f"tcp://{host}:8786").address


def test_a_cluster_elsewhere_needs_certificates_that_exist() -> None:
    settings = EngineSettings(kind="dask", address="tls://dask.example.org:8786", **TLS)
    with pytest.raises(SettingsError, match=r"no file ca\.pem"):
        engine_of(settings, allocate=np.empty, space=None)


def test_runs_share_the_workers_of_one_process(tmp_path: Path) -> None:
    settings = EngineSettings(kind="processes", workers=2)
    first = engine_of(settings, allocate=np.empty, space=None)
    assert engine_of(settings, allocate=np.empty, space=None) is first
    assert engine_of(settings, allocate=np.empty, space=DiskSpace(tmp_path)) is not first
    assert isinstance(engine_of(EngineSettings(), allocate=np.empty, space=None), LocalEngine)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = pytest.importorskip("hdpvfl_mq.engine.cluster", reason="needs the extra cluster")
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.5)
    settings = EngineSettings(kind="dask", address="tcp://127.0.0.1:9")
    rows = engine_of(settings, allocate=np.empty, space=None).allocate_rows((4, 2), np.float64)
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:9 cannot be reached"):
        list(rows.each(np.sum, [slice(0, 2), slice(2, 4)]))
