"""openmined-psi's intersection: `openmined_psi.py IDS`.

It owns the measurement and prints one line of JSON. Both sides are in one process, one after the
other, without a transport.
"""

from __future__ import annotations

import json
import sys
import time

import private_set_intersection.python as psi

count = int(sys.argv[1])
half = count // 2
mine = [f"{each:016d}" for each in range(count)]
theirs = [f"{each:016d}" for part in (range(half), range(count, 2 * count - half)) for each in part]
began, cpu = time.perf_counter(), time.process_time()
client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
setup = server.CreateSetupMessage(0.0, count, theirs, psi.DataStructure.RAW)
answer = server.ProcessRequest(client.CreateRequest(mine))
found = client.GetIntersection(setup, answer)
assert len(found) == half, len(found)
print(json.dumps({"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}))
