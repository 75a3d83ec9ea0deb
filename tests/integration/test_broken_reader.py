"""A broker that can no longer read stops and says so, instead of waiting for ever."""

from __future__ import annotations

import asyncio

import pytest

from hdpvfl_mq.errors import NetworkError
from tests.integration.sockets import SocketFederation


@pytest.mark.parametrize("part", ["reader", "gate"])
async def test_a_broker_whose_reader_died_stops(tmp_path, part):
    federation = SocketFederation()
    service = federation.open(tmp_path)

    def breaks(*_):
        raise TypeError("a mistake in the program")

    if part == "reader":
        service.router.from_connection = breaks
    else:
        service.gate._allowed = None  # the list that every new connection is looked up in
    federation.join("bank")
    with pytest.raises(NetworkError, match=r"ended \(\w+Error\)"):
        await asyncio.wait_for(federation.tasks.pop("coordinator"), 20)
    await federation.leave("bank")
