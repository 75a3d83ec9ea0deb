"""A name that was invited again: envelopes of the stream before do not reach its new member."""

from __future__ import annotations

import hashlib

import pytest
from nacl.signing import SigningKey

from broker.process.hosting import HostedFederation
from hdpvfl_mq.machine import OperatorCommand
from hdpvfl_mq.runtime.keys import make_keys
from hdpvfl_mq.wire.codec import decode_body, decode_header
from schemas.commands import Admit, Invite, RemoveMember, SeatMember
from schemas.federation import MemberHello
from tests.puppet import Puppet

SECRET = bytes(16)
KEYS = {
    name: SigningKey(bytes([n]) * 32) for n, name in enumerate(("bank", "shop", "telco", "new"))
}
COMMANDS = (
    SeatMember(
        party="shop",
        role="passive",
        verify_key=bytes(KEYS["shop"].verify_key),
        curve_key=bytes(32),
    ),
    *(
        command
        for party, key in (("bank", "bank"), ("telco", "telco"), ("shop", "new"))
        for command in (
            *((RemoveMember(party="shop"),) if key == "new" else ()),
            Invite(
                party=party,
                role="passive",
                secret_digest=hashlib.sha256(SECRET).digest(),
                expires_s=9,
            ),
            Admit(
                party=party,
                secret=SECRET,
                verify_key=bytes(KEYS[key].verify_key),
                curve_key=hashlib.sha256(key.encode()).digest(),
                at_s=1,
            ),
        )
    ),
)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_envelopes_to_the_member_before_do_not_reach_its_successor(tmp_path, is_restarted):
    """Bug: bank had not acknowledged them, and the new shop took their numbers for its own."""
    keys, sent = make_keys(tmp_path / "keys"), []

    async def forward(hosted, frames, routed):
        sent.append((frames, routed.connections))

    def opened() -> HostedFederation:
        return HostedFederation("spring", keys, state=tmp_path, forward=forward, speaks=2)

    hosted = opened()
    hosted.node.start()
    for command in COMMANDS:
        hosted.node.turn((), [OperatorCommand(command=command)])
    if is_restarted:
        hosted.node.close()
        hosted = opened()
    hosted.admit()
    hello = Puppet("shop", KEYS["new"], "coordinator", run="spring").say(MemberHello(epoch=1))
    hosted.router.from_connection(b"new shop", "shop", hello)
    for frames in hosted.node.mailbox.unacknowledged():
        await hosted.link.send(frames)
    hosted.node.close()
    meant = [f for f, _ in sent if "shop" in {d.party for d in decode_header(f).to}]
    (roster,) = (frames for frames, connections in sent if b"new shop" in connections)
    assert len(meant) == 3  # two of them to the member before
    assert {each.party for each in decode_body(decode_header(roster), roster).members} == {
        "bank",
        "shop",
        "telco",
    }
    (number,) = (d.sequence for d in decode_header(roster).to if d.party == "shop")
    assert number == 1
