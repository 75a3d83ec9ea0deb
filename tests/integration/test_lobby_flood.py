"""A flood of guests in the lobby costs members nothing, and ends with the flood."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from broker.registrar import GUESSES_MAX
from hdpvfl_mq.runtime.keys import make_keys
from hdpvfl_mq.runtime.knock import knock
from hdpvfl_mq.runtime.transport import DealerLink
from hdpvfl_mq.wire.invitation import Invitation, knock_of, read_line
from schemas.ids import COORDINATOR
from tests.integration.standing import standing, until
from tests.integration.test_watching import change

GUESTS, KNOCKS = 24, 40


async def flood(invitation: Invitation, folder: Path) -> None:
    """Strangers with keys of their own, who guess and send nonsense."""
    keys = [make_keys(folder / f"guest-{number}") for number in range(GUESTS)]
    links = [DealerLink(f"tcp://{invitation.address}", each, invitation.curve_key) for each in keys]
    for number in range(KNOCKS):
        for link, own in zip(links, keys, strict=True):
            guess = Invitation(**{**vars(invitation), "secret": os.urandom(16)})
            said = knock_of(guess, own.signing, own.curve_public) if number % 2 else os.urandom(999)
            await link.send((said,))
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    for link in links:
        link.close()


async def test_a_flood_of_guests_costs_members_nothing(tmp_path):
    async with standing(tmp_path, start=False) as services:
        port = services.demo.service(COORDINATOR).read_text().split("127.0.0.1:")[1].split('"')[0]
        change(services, COORDINATOR, address=f"tcp://127.0.0.1:{port}")
        await services.start()
        lines = [
            read_line((await services.ask(COORDINATOR, "invite", party=name))["line"])
            for name in ("telco", "other")
        ]
        flooding = asyncio.create_task(flood(lines[0], tmp_path))
        await services.propose("one")
        seen = await services.phase("one", "over")
        assert {each["outcome"] for each in seen.values()} == {"completed"}
        await flooding
        broker = services.live[COORDINATOR]
        standing_ = broker.federations["first.fed"].standing
        assert set(standing_.members) == set(services.demo.parties)  # nobody got in
        # The lobby hears a few of them a minute; three wrong guesses burn a line.
        telco = standing_.invitations.get("telco")
        assert telco is None or telco.guesses < GUESSES_MAX
        # The lobby is slow to who guesses; who has the right line comes in at once.
        broker._knocks.left = -1000.0  # as after a flood of any length
        await asyncio.wait_for(knock(lines[1], make_keys(tmp_path / "other")), 10.0)
        await until(lambda: "other" in broker.federations["first.fed"].standing.members, "other")
