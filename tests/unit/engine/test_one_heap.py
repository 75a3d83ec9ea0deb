"""hdpvfl_mq/engine/one_heap: threads allocate where the process does."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hdpvfl_mq.engine.one_heap import share_heap

SIZE = 1000


def _place_in_a_thread() -> int:
    """Where a new thread gets memory."""
    malloc, places = ctypes.CDLL(None).malloc, list[int]()
    malloc.restype = ctypes.c_size_t
    thread = threading.Thread(target=lambda: places.append(malloc(SIZE)))
    thread.start()
    thread.join()
    return places[0]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such call")
@pytest.mark.parametrize(("asked", "place"), [((), "outside"), (("shared",), "inside")])
def test_a_thread_uses_the_first_heap(asked, place):
    command = [sys.executable, __file__, *asked]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == place


def _shown() -> str:
    """Whether a thread's memory is in the heap of the process."""
    (begin, end), *_ = re.findall(
        r"^(\w+)-(\w+) .*\[heap\]$", Path("/proc/self/maps").read_text(), flags=re.MULTILINE
    )
    is_inside = int(begin, 16) <= _place_in_a_thread() < int(end, 16)
    return "inside" if is_inside else "outside"


if __name__ == "__main__":
    if "shared" in sys.argv:
        share_heap()
    print(_shown())
