"""Broker and parties on hosts of their own: network namespaces with their own addresses.

A switch of its own namespace connects them, so nothing of the machine's network is touched. The
processes get their settings files and nothing else; a link that is cut for a while only delays.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from hdpvfl_mq.runtime.status import read
from schemas.ids import COORDINATOR
from tests.integration.networks import Network
from tests.integration.processes import Processes, processes, wait_for

PORT = 5555
HOSTS = (COORDINATOR, "active", "passive-1", "passive-2")


@pytest.fixture
def network() -> Iterator[Network]:
    with network_or_skip(HOSTS) as made:
        yield made


@contextmanager
def network_or_skip(hosts: Iterable[str]) -> Iterator[Network]:
    """A network of these hosts, where one can be made."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces cannot be made: there is no ip command (iproute2)")
    if os.geteuid() != 0:
        pytest.skip("network namespaces cannot be made: this is not root")
    network = Network(hosts)
    try:
        network.make()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as broken:
        network.remove()
        words = (getattr(broken, "stderr", None) or b"").decode().strip()
        pytest.skip(f"network namespaces cannot be made: {words or broken}")
    try:
        yield network
    finally:
        network.remove()


def spread(started: Processes, network: Network) -> None:
    """Give every process its host and the broker's address; nothing else differs from the demo."""
    for name in HOSTS:
        started.before[name] = partial(network.enter, name)
    endpoint = f"tcp://{network.address(COORDINATOR)}:{PORT}"
    started.change(COORDINATOR, bind=endpoint)
    for party in started.demo.parties:
        started.change(party, broker=endpoint)


def round_of(started: Processes) -> int:
    return read(Path(started.demo.folder) / "active" / "status.json").get("round", 0)


def assert_trained(started: Processes) -> None:
    started.end()
    for party in started.demo.parties:
        model = json.loads((started.demo.folder / party / "model.json").read_text())
        assert any(model["weights"])


def test_four_hosts_train_a_model_with_their_settings_files_alone(network, tmp_path):
    with processes(tmp_path) as started:
        spread(started, network)
        started.start()
        assert_trained(started)


@pytest.mark.parametrize(
    "cut_s",
    [
        3.0,  # TCP mends this by itself
        pytest.param(14.0, marks=pytest.mark.slow),  # the broker is connected to again
    ],
)
@pytest.mark.parametrize("name", ["passive-1", pytest.param(COORDINATOR, marks=pytest.mark.slow)])
def test_a_link_that_is_cut_for_a_while_only_delays(network, tmp_path, name, cut_s):
    with processes(tmp_path, guarantee="none", epochs=500) as started:
        spread(started, network)
        started.start()
        wait_for(lambda: round_of(started) > 20, "training")
        network.link(name, "down")
        time.sleep(1.0)
        stuck = round_of(started)
        time.sleep(cut_s - 1.0)
        assert round_of(started) <= stuck + 5, "the link was not cut"
        assert stuck < 500
        network.link(name, "up")
        assert_trained(started)
