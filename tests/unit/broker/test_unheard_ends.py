"""Runs that are over and whose end a party does not acknowledge: a broker keeps a few of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from broker.process.open_runs import UNHEARD_ENDS_ALL, UNHEARD_ENDS_MAX, OpenRuns
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.ports import Contact, Identity
from tests.unit.node.node_bench import KEYS


def hosted(*waiting: str, outcome: str | None = "completed") -> SimpleNamespace:
    """A run of some parties, some of which have not acknowledged its end."""
    contacts = {p: Contact("passive", KEYS["shop"].verify_key) for p in ("shop", "telco", *waiting)}
    mailbox = Mailbox(Identity("coordinator", "coordinator", "r", KEYS["coordinator"]), contacts)
    for party in waiting:
        mailbox._outbox[party].keep(mailbox._outbox[party].number(), (b"",), 1)
    link = SimpleNamespace(wake=asyncio.Event())
    return SimpleNamespace(node=SimpleNamespace(mailbox=mailbox, outcome=outcome), link=link)


def test_a_party_that_acknowledges_no_end_does_not_keep_all_runs_open(monkeypatch):
    """Bug: each kept its files open for ever; two members could use up the descriptors."""
    runs = {f"run-{n}": hosted("shop") for n in range(UNHEARD_ENDS_MAX + 5)}
    runs |= {"both": hosted("shop", "telco"), "open": hosted("shop", outcome=None)}
    broker = object.__new__(OpenRuns)
    broker.table = runs
    monkeypatch.setattr(broker, "run_of", lambda federation, name: runs[name])
    broker.give_up_on(None)
    over = [name for name, run in runs.items() if not run.node.mailbox.awaited_peers]
    assert over == [f"run-{n}" for n in range(6)]  # the oldest
    assert all(runs[name].link.wake.is_set() for name in over)
    assert runs["both"].node.mailbox.awaited_peers == ("shop", "telco")
    assert runs["open"].node.mailbox.awaited_peers == ("shop",)
    assert runs["run-0"].node.mailbox.waiting_peers == ("shop",)  # it is told later


def test_members_that_take_turns_do_not_keep_all_runs_open(monkeypatch):
    """Bug: each of 100 members could keep 32 runs of its own open."""
    names = [f"run-{n}" for n in range(UNHEARD_ENDS_ALL + 4)]
    runs = {name: hosted(f"p{number % 100}") for number, name in enumerate(names)}
    broker = object.__new__(OpenRuns)
    broker.table = runs
    monkeypatch.setattr(broker, "run_of", lambda federation, name: runs[name])
    broker.give_up_on(None)
    over = [name for name, run in runs.items() if not run.node.mailbox.awaited_peers]
    assert over == names[:4]  # the oldest
