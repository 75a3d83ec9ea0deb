"""Weights, ledgers, journals and replay have the same bits whatever engine computed them.

The workers are real processes, and one of them is killed in the middle of a fit. The tests take
more than three seconds because they start interpreters.
"""

from __future__ import annotations

import datetime
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hdpvfl_mq.engine.cluster_tasks import Block, Task
from hdpvfl_mq.engine.port import Engine, Job, LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.engine.rows_folder import RowsFolder
from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.errors import NetworkError, OperatorError, SettingsError
from hdpvfl_mq.glm import block
from hdpvfl_mq.methods.private_model import problem, statistics
from hdpvfl_mq.privacy import mechanism, noise
from hdpvfl_mq.psi import oprf, packed
from hdpvfl_mq.runtime.profile import numeric_profile
from parties.assets import Assets
from schemas.methods import PrivateModel
from tests.dask_cluster import DaskCluster
from tests.federation import Federation, descent, manifest

METHODS = {"private model": PrivateModel(), "descent": descent(epochs=1)}


@dataclass
class Killed:
    """An engine that loses a worker after the first block of some job."""

    engine: Engine
    kill: Callable[[], None]
    at: int
    jobs: int = 0
    kernels: set[str] = field(default_factory=set)  # of jobs without rows, of several pieces
    dies_in: set[str] = field(default_factory=set)  # kernels in which a worker is still to die

    @property
    def sees_ids(self) -> bool:
        return self.engine.sees_ids

    def allocate_rows(self, shape: tuple[int, int], dtype: Any) -> Any:
        return KilledRows(self, self.engine.allocate_rows(shape, dtype))

    def read(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        return self.engine.read(kernel, pieces)

    def each(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        for number, result in enumerate(self.engine.each(kernel, pieces)):
            if number == 1:
                self.kernels.add(kernel.__name__)
                if kernel.__name__ in self.dies_in:
                    self.dies_in.remove(kernel.__name__)
                    self.kill()
            yield result


@dataclass
class KilledRows:
    of: Killed
    rows: Any

    @property
    def X(self) -> Any:
        return self.rows.X

    def each(self, kernel: Any, parts: Any, **more: Any) -> Iterator[Any]:
        if len(parts) > 1:
            self.of.jobs += 1
        is_last = len(parts) > 1 and self.of.jobs == self.of.at
        for number, result in enumerate(self.rows.each(kernel, parts, **more)):
            if is_last and number == 0:
                self.of.kill()
            yield result


class Computed(Federation):
    """A federation whose parties compute with an engine."""

    def __init__(self, method: Any, engine: Engine) -> None:
        self.engine = engine
        super().__init__(manifest=manifest(method=method))

    def assets(self, party: str) -> Assets:
        return replace(super().assets(party), engine=self.engine)

    def outcome(self) -> tuple[Any, ...]:
        """Weights, ledgers and journals of one run, as bytes."""
        weights = self.weights(self.simulate())
        assert set(self.outcomes.values()) == {"completed"}
        journals = {p: tuple(self.journals[p].records()) for p in self.parties}
        return {p: w.tobytes() for p, w in weights.items()}, self.spent(), journals


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many blocks of few rows; one BLAS thread, as in a party's process."""
    monkeypatch.setattr(block, "CHUNK_NUMBERS", 120)
    monkeypatch.setattr(statistics, "_BLOCK_ROWS", 8)
    monkeypatch.setattr(statistics, "_BLOCKS_TOGETHER", 2)
    for module, name in ((noise, "CHUNK_ROWS"), (mechanism, "CHUNK_ROWS")):
        monkeypatch.setattr(module, name, 8)
    monkeypatch.setattr(packed, "CHUNK_ROWS", 8)
    monkeypatch.setattr(oprf, "_HASHED_ROWS", 8)
    with pin_threads():
        yield


def replayed(method: Any, before: Computed) -> None:
    """Fold the journals again with another engine: every record must be the recorded one."""
    again = Computed(method, LocalEngine())
    again.journals, again.ledgers = before.journals, before.ledgers
    for party in before.parties:
        node = again.node(party)
        node.open()
        assert node.outcome == "completed"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What one process computes, kept for all engines of a method."""
    return {}


def check(name: str, engine: Killed, expected: dict[str, Any]) -> None:
    if name not in expected:
        expected[name] = Computed(METHODS[name], LocalEngine()).outcome()
    found = Computed(METHODS[name], engine)
    assert found.outcome() == expected[name]
    assert engine.jobs > engine.at  # the worker was killed, and the fit went on
    replayed(METHODS[name], found)


# Kernels of noise and of the hashing of ids, which are handed out too.
KERNELS = {"hashed_part", "sort_keys", "drawn_part", "hashed_records"}


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("private model", KERNELS), pytest.param("descent", set(), marks=pytest.mark.slow)],
)
def test_processes_give_the_bits_of_one_process(
    name: str, kernels: set[str], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies in the middle of the fit, and another in the middle of each kernel."""
    engine = ProcessEngine(2)
    monkeypatch.setattr(problem, "CHUNK_NUMBERS", 120)
    killed = set()

    def kill() -> None:
        killed.add(engine.pids[0])
        os.kill(engine.pids[0], signal.SIGKILL)

    counted = Killed(engine, kill, at=3, dies_in=set(kernels))
    try:
        check(name, counted, expected)
        assert len(engine.pids) == 2
        assert not killed & set(engine.pids)
    finally:
        engine.close()
    assert len(killed) == 1 + len(kernels)  # another process each time
    assert kernels <= counted.kernels


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    pytest.importorskip("distributed", reason="needs the extra cluster")
    cluster = DaskCluster(tmp_path_factory.mktemp("dask"))
    for _ in range(3):  # each test begins with at least two and kills one
        cluster.add()
    yield cluster
    cluster.close()


@pytest.mark.parametrize("shared", [False, True], ids=["sent", "in a folder"])
def test_a_dask_cluster_gives_the_bits_of_one_process(
    cluster: DaskCluster,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    shared: bool,
) -> None:
    from hdpvfl_mq.engine import cluster as dask_engine  # noqa: PLC0415 - needs the extra

    monkeypatch.setattr(dask_engine, "STRETCH_BYTES", 1000)  # some blocks lie in two stretches
    folder = cluster.folder / "rows"
    engine = dask_engine.ClusterEngine(
        cluster.address, profile=numeric_profile, folder=RowsFolder(folder) if shared else None
    )
    engine.wait_for_workers(2)
    try:
        check("private model", Killed(engine, cluster.kill, at=3), expected)
    finally:
        engine.close()
    assert not list(folder.glob("*"))


def test_a_cluster_says_no_value_and_computes_no_other_bits(cluster: DaskCluster) -> None:
    """Dask logs the arguments of a task that raises, so no task of ours does."""
    from hdpvfl_mq.engine.cluster import ClusterEngine  # noqa: PLC0415 - needs the extra

    parts, secret = [slice(0, 4), slice(4, 8)], 0.123456789
    engine = ClusterEngine(cluster.address, profile=numeric_profile)
    other = ClusterEngine(cluster.address, profile=os.getpid)  # another one at every worker
    rows, foreign = (
        engine.allocate_rows((8, 2), np.float64),
        other.allocate_rows((8, 2), np.float64),
    )
    rows.X[:] = foreign.X[:] = secret
    try:
        with pytest.raises(OperatorError, match="could not compute inv: TypeError") as told:
            list(rows.each(np.linalg.inv, parts, along=(rows.X[:, 0],), given=(rows.X, secret)))
        with pytest.raises(SettingsError, match="OPENBLAS_CORETYPE"):
            list(foreign.each(np.sum, parts))
        assert [float(part) for part in rows.each(np.sum, parts)] == [8 * secret] * 2
    finally:
        engine.close()
        other.close()
    job = Job(np.sum, tuple(parts), (rows.X[:, 0],), (secret,))
    task = Task(job, numeric_profile, "")
    shown = [str(told.value), cluster.log.read_text()]
    shown += [repr(each) for each in (rows, engine, Block(rows.X), task)]
    assert not [text for text in shown if "1234" in text]
    with pytest.raises(TypeError, match="cannot leave"):
        pickle.dumps(rows)


def test_numbers_at_odd_addresses_are_aligned_when_they_arrive() -> None:
    """numpy copies both sides of X' X at an odd address, and the product has other bits."""
    dice = np.random.default_rng(5)
    straight = dice.normal(size=(500, 61))
    odd = np.frombuffer(b"\0" + straight.tobytes(), dtype=np.uint8)[1:].view(np.float64)
    odd = odd.reshape(straight.shape)
    assert not odd.flags.aligned
    arrived = pickle.loads(pickle.dumps(Block(odd), protocol=5, buffer_callback=None))
    assert arrived.X.flags.aligned
    make, arguments = Block(odd).__reduce__()
    assert make(*arguments).X.flags.aligned


@pytest.mark.slow
def test_a_cluster_with_certificates(tmp_path: Path) -> None:
    """The connection is encrypted, and a party without a certificate is not served."""
    from hdpvfl_mq.engine.cluster import ClusterEngine  # noqa: PLC0415 - needs the extra

    ca, certificate, key = certificates(tmp_path)
    options = ("--tls-ca-file", ca, "--tls-cert", certificate, "--tls-key", key)
    cluster = DaskCluster(tmp_path, *options, protocol="tls")
    cluster.add()
    cluster.add()
    engine = ClusterEngine(cluster.address, profile=numeric_profile, tls=(ca, certificate, key))
    rows = engine.allocate_rows((8, 2), np.float64)
    rows.X[:] = 1.0
    try:
        assert cluster.address.startswith("tls://")
        engine.wait_for_workers(2)
        assert [float(p) for p in rows.each(np.sum, [slice(0, 4), slice(4, 8)])] == [8.0, 8.0]
        stranger = certificates(tmp_path / "stranger")
        without = ClusterEngine(cluster.address, profile=numeric_profile, tls=stranger)
        with pytest.raises(NetworkError, match="cannot be reached"):
            without.wait_for_workers(1)
    finally:
        engine.close()
        cluster.close()


def certificates(folder: Path) -> tuple[str, str, str]:
    """A certificate that is its own authority, for all sides, and its key."""
    folder.mkdir(exist_ok=True)
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cluster")])
    made = (
        x509.CertificateBuilder(name, name, secret.public_key(), 1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    paths = folder / "own.pem", folder / "own.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(paths[0]), str(paths[0]), str(paths[1])
