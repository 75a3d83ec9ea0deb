"""How test files are spread over workers: some run tests that wait, others tests that compute."""

from __future__ import annotations

from types import SimpleNamespace

from tests.spread import Spread

FILES = (
    *("tests/simulation/test_faults.py", "tests/integration/test_live.py"),
    *("tests/integration/test_page.py", "tests/unit/test_machine.py", "tests/unit/test_small.py"),
)


class Worker:
    """What a scheduler asks of a worker; it notes the tests it was given."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices) -> None:
        self.given += [FILES[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def test_half_of_the_workers_take_what_waits_and_no_file_is_left(pytestconfig):
    option = SimpleNamespace(tx=["popen"] * 2, loadscopereorder=False, debug=False)
    config = SimpleNamespace(
        option=option, getvalue=lambda name: getattr(option, name), hook=pytestconfig.hook
    )
    spread, workers = Spread(config), (Worker("gw0"), Worker("gw1"))
    for worker in workers:
        spread.add_node(worker)
        spread.add_node_collection(worker, [f"{file}::test" for file in FILES])
    spread.schedule()
    computing, waiting = workers
    assert computing.given == [FILES[0], FILES[3]]
    assert waiting.given == [FILES[1], FILES[2]]
    spread.mark_test_complete(waiting, 1)
    assert waiting.given == [FILES[1], FILES[2], FILES[4]]  # nothing is left that waits
