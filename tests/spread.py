"""Spread test files over the workers of xdist.

Tests of real processes wait for much of their time. Half of the workers take their files first; the
other half takes files that compute. So there is always something to compute, and no core is idle.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

WAITING = "tests/integration/"


class Spread(LoadFileScheduling):
    """Like `--dist loadfile`; a worker that finds no file of its kind takes the next one."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_for_waiting = self.nodes.index(node) % 2 == 1
        wanted = (file for file in self.workqueue if file.startswith(WAITING) == is_for_waiting)
        if file := next(wanted, None):
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
