"""A process that dies between asking for its ledger's head and reading it asks again."""

from __future__ import annotations

from tests.federation import Federation


class DiesOnce:
    """A journal whose process dies on the first record of the ledger's standing."""

    def __init__(self, journal) -> None:
        self._journal, self.records = journal, journal.records

    def commit(self, records) -> None:
        if any(b"\xa6ledger\xa8standing" in stored for _, stored, _ in records):
            raise RuntimeError("killed")
        self._journal.commit(records)


def test_the_run_ends_although_the_process_died_between_the_two_steps():
    calm = Federation()
    expected = calm.weights(calm.simulate())
    federation = Federation()
    plain_node, deaths = federation.node, []

    def node(party):
        made = plain_node(party)
        if party == "shop" and not deaths:
            made._journal = DiesOnce(federation.journals[party])
        return made

    federation.node = node
    try:
        federation.simulate()
    except RuntimeError:
        deaths.append("shop")
    assert deaths == ["shop"]
    simulation = federation.simulate()  # everybody starts again from disk
    assert set(federation.outcomes.values()) == {"completed"}
    for party, w in federation.weights(simulation).items():
        assert (w == expected[party]).all()
