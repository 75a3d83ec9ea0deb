"""Rounds of NVFLARE's Collab API in its simulator: `nvflare_round.py CLIENTS ROUNDS BYTES`.

It owns the measurement and prints one line of JSON. The server calls every client with as many
bytes as a residual has and gets as many back; nothing is computed, signed, noised or stored.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from nvflare.collab import CollabRecipe, collab
from nvflare.recipe import SimEnv

WARM_UP = 5


class Server:
    """Calls all clients, round after round."""

    def __init__(self, rounds: int = 1, size: int = 1, out: str = "") -> None:
        self.rounds, self.size, self.out = rounds, size, out

    @collab.main
    def run(self) -> None:
        """Write the seconds of every round."""
        body, taken = os.urandom(self.size), []
        for number in range(self.rounds + WARM_UP):
            began = time.perf_counter()
            for _, answer in collab.clients(timeout=60).share(body):
                assert len(answer) == self.size
            if number >= WARM_UP:
                taken.append(time.perf_counter() - began)
        Path(self.out).write_text(json.dumps(sorted(taken)))


class Client:
    """Answers with as many bytes as it gets."""

    @collab.publish
    def share(self, body: bytes) -> bytes:
        """One answer."""
        return body[::-1]


def main() -> None:
    """Run the job and print the median."""
    clients, rounds, size = (int(each) for each in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "taken.json"
        server = Server(rounds, size, str(out))
        recipe = CollabRecipe("bench", server=server, client=Client(), min_clients=clients)
        recipe.run(SimEnv(num_clients=clients, num_threads=clients, workspace_root=folder))
        taken = json.loads(out.read_text())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"wall_s": taken[len(taken) // 2], "whole_cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
