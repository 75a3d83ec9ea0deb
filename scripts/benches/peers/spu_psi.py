"""SPU's private set intersection: `spu_psi.py PROTOCOL IDS`, with PROTOCOL RR22 or KKRT.

It owns the measurement and prints one line of JSON. Both parties are threads of one process with a
link in memory, which is the fastest link there is; input and output are CSV files, because the
interface takes nothing else.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

from spu import libspu, psi

RANKS = (0, 1)


def main() -> None:
    """Intersect two sets, half of each common, and print the seconds."""
    protocol, count = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder, half = Path(name), count // 2
        desc = libspu.link.Desc()
        for rank in RANKS:
            own = range(count + rank * half, count + rank * half + count - half)
            lines = [f"{each:016d}\n" for part in (range(half), own) for each in part]
            (folder / f"in{rank}.csv").write_text("id\n" + "".join(lines))
            desc.add_party(f"party{rank}", f"link{rank}")
        found: dict[int, int] = {}
        parties = [Thread(target=_party, args=(folder, desc, r, protocol, found)) for r in RANKS]
        began, cpu = time.perf_counter(), time.process_time()
        for each in parties:
            each.start()
        for each in parties:
            each.join()
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    assert found == dict.fromkeys(RANKS, half), found
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s}), flush=True)


def _party(
    folder: Path, desc: libspu.link.Desc, rank: int, protocol: str, found: dict[int, int]
) -> None:
    settings = psi.PsiProtocolConfig(
        protocol=psi.parse_protocol(f"PROTOCOL_{protocol}"), receiver_rank=0, broadcast_result=True
    )
    source = psi.InputParams(
        path=str(folder / f"in{rank}.csv"), selected_keys=["id"], keys_unique=True
    )
    config = psi.PsiExecuteConfig(
        protocol_conf=settings,
        input_params=source,
        output_params=psi.OutputParams(path=str(folder / f"out{rank}.csv")),
    )
    done = psi.psi_execute(config, libspu.link.create_mem(desc, rank))
    found[rank] = done.intersection_count


if __name__ == "__main__":
    main()
