"""Rounds of messages in Flower's simulation: `flower_round.py CLIENTS ROUNDS BYTES`.

It owns the measurement and prints one line of JSON. The server app sends every node as many bytes
as a residual has and gets as many back; nothing is computed, signed, noised or stored.
"""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import median

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"  # it runs on this machine only

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

WARM_UP = 2
client, server = ClientApp(), ServerApp()
CLIENTS, ROUNDS, SIZE = (int(each) for each in sys.argv[1:4])
taken: list[float] = []


@client.query()
def share(message: Message, context: Context) -> Message:
    """Answer with as many bytes as it gets."""
    body = bytes(message.content["sent"]["body"])
    back = RecordDict({"sent": ConfigRecord({"body": body[::-1]})})
    return Message(content=back, reply_to=message)


@server.main()
def run(grid: Grid, context: Context) -> None:
    """Call all nodes, round after round."""
    while len(nodes := list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.1)
    body = os.urandom(SIZE)
    for number in range(ROUNDS + WARM_UP):
        began = time.perf_counter()
        sent = RecordDict({"sent": ConfigRecord({"body": body})})
        kind = MessageType.QUERY
        answers = grid.send_and_receive(
            [Message(content=sent, message_type=kind, dst_node_id=node) for node in nodes],
            timeout=150,
        )
        assert [len(each.content["sent"]["body"]) for each in answers] == [SIZE] * CLIENTS
        if number >= WARM_UP:
            taken.append(time.perf_counter() - began)


if __name__ == "__main__":
    run_simulation(server, client, CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})
    print(json.dumps({"wall_s": median(taken)}), flush=True)
