"""One release of many rows through the exchange of parts, with the private memory of both sides.

It owns made-up values and two processes with a journal each, which talk over a socket; there is no
role, no model and no broker. The receiver is killed half-way and started again. Run as a program:
`python -m scripts.benches.large_release FOLDER ROWS`.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
from nacl.signing import SigningKey

from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.mailbox import Mailbox, Stamp
from hdpvfl_mq.node.parts import PartExchange
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from hdpvfl_mq.wire.parts import PartList
from parties.process.mapped_arrays import MappedArrays
from schemas.delivery import Part, PartRequest
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION
from schemas.ids import PartyRole
from schemas.messages import ScoreShare
from schemas.tensor import Tensor
from scripts.benches.large_run import memory_mib
from tests.samples import example

ROWS_AT_ONCE, PARTS_AT_ONCE = 2**20, 16
SAMPLE_S, ENDS_S = 0.2, 60.0
RUN = "large-release"
OTHER: dict[PartyRole, PartyRole] = {"active": "passive", "passive": "active"}
_KEYS = {role: SigningKey(role.encode().ljust(32, b"\0")) for role in OTHER}
_STAMP = Stamp(epoch=1, head=bytes(32), size=0, root=bytes(32))


class Side:
    """One party's journal, signatures and parts."""

    def __init__(self, role: PartyRole, folder: Path) -> None:
        versions = (PROTOCOL_VERSION, PROTOCOL_VERSION)
        peer = OTHER[role]
        contact = Contact(peer, _KEYS[peer].verify_key, PROTOCOL_VERSION)
        me = Identity(role, role, RUN, _KEYS[role], versions=versions)
        self.mailbox = Mailbox(me, {peer: contact})
        folder.mkdir(exist_ok=True)
        self.journal = Journal(folder / "journal.db", run=RUN, party=role)
        self.parts = PartExchange(self.journal)

    def opened(self, frames: Frames) -> Part | PartRequest:
        """A verified message of the exchange of parts."""
        header = self.mailbox.accept(frames)
        assert header is not None
        message = decode_body(header, frames)
        assert isinstance(message, Part | PartRequest)
        return message


def send(folder: Path, rows: int) -> None:
    """Make the values, store their parts, and serve them until the other side has all."""
    side, state = Side("passive", folder), hashlib.sha256()
    values = MappedArrays(DiskSpace(folder))((rows,), "<i8")
    for start in range(0, rows, ROWS_AT_ONCE):
        part = np.random.default_rng(start).integers(
            -(2**40), 2**40, min(ROWS_AT_ONCE, rows - start)
        )
        values[start : start + len(part)] = part
        state.update(part.data)
    array = values.data.cast("B").toreadonly()
    envelope = side.mailbox.write(("active",), _share(array), NO_PARENT, _STAMP)
    listed = PartList.of_frames(envelope)
    for first in range(0, len(listed), PARTS_AT_ONCE):
        numbers = range(first, min(first + PARTS_AT_ONCE, len(listed)))
        side.journal.keep_parts((listed.digests[n], listed.cut(array, n)) for n in numbers)
    with Listener(str(folder / "link")) as door:
        while True:
            with suppress(EOFError, OSError), door.accept() as link:  # it was killed: once more
                _serve(side, envelope, link)
                link.send(state.hexdigest())
                return


def _serve(side: Side, envelope: Frames, link: Connection) -> None:
    """Answer requests until the other side says that it has all."""
    link.send(envelope)
    while (frames := link.recv()) is not None:
        request = side.opened(frames)
        assert isinstance(request, PartRequest)
        side.parts.want("active", request, envelope)
        for party, part in side.parts.served():
            link.send(side.mailbox.unnumbered(party, part, _STAMP))


def _share(array: memoryview) -> ScoreShare:
    sample: ScoreShare = example(ScoreShare)
    tensor = Tensor(dtype="<i8", shape=(len(array) // 8,), data=array)
    release = sample.release.model_copy(update={"tensor": tensor})
    return sample.model_copy(update={"release": release})


def receive(folder: Path, rows: int, door: Path) -> None:
    """Ask for parts and store them; then the digest of the whole array, as it is mapped."""
    side = Side("active", folder)
    while not door.exists():
        time.sleep(SAMPLE_S)
    link = Client(str(door))
    envelope = link.recv()
    side.mailbox.accept(envelope)
    limit, sequence = rows * 8, decode_header(envelope).to[0].sequence
    taken = 0
    while not side.parts.is_whole("passive", sequence, envelope, limit):
        for party, request in side.parts.requests():
            link.send(side.mailbox.unnumbered(party, request, _STAMP))
        for frames in _waiting(link):
            part = side.opened(frames)
            assert isinstance(part, Part)
            side.parts.take("passive", part)
        taken += side.parts.store()
    whole, state = side.parts.whole(envelope, limit), hashlib.sha256()
    for start in range(0, len(whole), 2**20):
        state.update(whole[start : start + 2**20])
    link.send(None)
    assert link.recv() == state.hexdigest(), "another array arrived"
    listed = len(PartList.of_frames(envelope))
    print(f"{taken} of {listed} parts came after the second start; the array is whole", flush=True)


def _waiting(link: Connection) -> Iterator[Frames]:
    yield link.recv()
    while link.poll():
        yield link.recv()


class Watched:
    """The largest private memory of some processes, in MiB."""

    def __init__(self) -> None:
        self.most: dict[str, float] = {}

    def look(self, **processes: BaseProcess) -> None:
        """Look once."""
        for name, process in processes.items():
            now = memory_mib(process.pid or 0).get("Anonymous", 0.0)
            self.most[name] = max(now, self.most.get(name, 0.0))
        time.sleep(SAMPLE_S)


def main() -> int:
    """Run both sides, kill one half-way, and print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    make, began, watched = get_context("spawn"), time.monotonic(), Watched()
    folder, rows = chosen.folder.absolute(), chosen.rows
    passive = make.Process(target=send, args=(folder / "passive", rows))

    def receiver() -> BaseProcess:
        arguments = (folder / "active", rows, folder / "passive" / "link")
        process = make.Process(target=receive, args=arguments)
        process.start()
        return process

    passive.start()
    active = receiver()
    while passive.is_alive() and _bytes(folder / "active" / "journal.db") < rows * 4:
        watched.look(active=active, passive=passive)
    active.kill()
    active.join()
    active = receiver()
    while active.is_alive() and passive.is_alive():
        watched.look(active=active, passive=passive)
    passive.join()
    active.join(ENDS_S)
    active.kill()  # if the other side failed, it waits for ever
    peaks = ", ".join(f"{name} {most:.0f}" for name, most in sorted(watched.most.items()))
    took = time.monotonic() - began
    print(f"{rows} rows: {took:.0f} s; private MiB at most: {peaks}", flush=True)
    return int(any(each.exitcode != 0 for each in (active, passive)))


def _bytes(path: Path) -> int:
    """What a journal has on disk, with what is not yet folded into its main file."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(each.stat().st_size for each in files if each.exists())


if __name__ == "__main__":
    raise SystemExit(main())
