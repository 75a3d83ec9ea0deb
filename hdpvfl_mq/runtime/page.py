"""A read-only web page of one service: members, runs, and privacy spend.

It owns the routes, their access rules and how often the page is updated; it shows only the
service's status. Anybody with the token of the state folder may read the page; it can change
nothing, and it loads nothing from other hosts.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpvfl_mq.runtime.keys import read_secret, write_secret

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

Look = Callable[[], dict[str, Any]]
TICK_S = 0.5
BEAT_TICKS = 20  # send at least a heartbeat this often, so that a browser notices a lost service
_TOKEN_BYTES = 32
_HOSTS = {"127.0.0.1", "localhost", "[::1]"}
_REFUSED = "this page needs its token: 'hdpvfl page' prints the address to open\n"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class PageFiles:
    """Paths of the page's token and of the reports of the party's runs."""

    state: Path
    runs: Path
    party: str

    def token(self) -> str:
        """The token that opens the page, made on first use."""
        path = self.state / "page.token"
        if not path.exists():
            write_secret(path, os.urandom(_TOKEN_BYTES))
        return read_secret(path, _TOKEN_BYTES).hex()

    def report(self, run: str) -> Path | None:
        """The report file of a run, if one was written."""
        path = self.runs / run / self.party / "report.html"
        return path if path.is_file() else None


def is_loopback(request: Request) -> bool:
    """Whether a request names this machine.

    A page of another site can give its own name this machine's address, and then read answers.
    """
    host = request.headers.get("host", "")
    return re.sub(r":[0-9]{1,5}$", "", host) in _HOSTS


def _may_read(request: Request, token: str) -> bool:
    """Whether a request has the token and names this machine."""
    given = request.query_params.get("token", "")
    return is_loopback(request) and hmac.compare_digest(given.encode(), token.encode())


def address_of(watch: str, place: PageFiles) -> str:
    """The address of the page, with its token, for a browser."""
    return f"http://{watch}/?token={place.token()}"


def routes(look: Look, place: PageFiles) -> list[Route]:
    """The routes of the page, its updates, and the reports it links to."""
    from starlette.responses import (  # noqa: PLC0415 - an extra
        HTMLResponse,
        PlainTextResponse,
        StreamingResponse,
    )
    from starlette.routing import Route  # noqa: PLC0415 - an extra

    token = place.token()

    def refused(request: Request) -> Response | None:
        if _may_read(request, token):
            return None
        return PlainTextResponse(_REFUSED, status_code=403, headers=_HEADERS)

    async def page(request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        return refused(request) or HTMLResponse(_html(nonce), headers=_policy(f"'nonce-{nonce}'"))

    async def events(request: Request) -> Response:
        return refused(request) or StreamingResponse(
            _news(look, place), media_type="text/event-stream", headers=_HEADERS
        )

    async def report(request: Request) -> Response:
        if no := refused(request):
            return no
        name = str(request.path_params["run"])
        known = _runs(look())
        path = place.report(name) if name in known else None
        if path is None:
            text = f"no report of this run yet: hdpvfl report {name if name in known else 'RUN'}\n"
            return PlainTextResponse(text, status_code=404, headers=_HEADERS)
        return HTMLResponse(path.read_text(), headers=_policy("'none'"))

    return [Route("/", page), Route("/events", events), Route("/report/{run}", report)]


def _policy(scripts: str) -> dict[str, str]:
    allowed = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    return {**_HEADERS, "Content-Security-Policy": allowed}


def _html(nonce: str) -> str:
    return files("hdpvfl_mq.runtime").joinpath("page.html").read_text().replace("NONCE", nonce)


async def _news(look: Look, place: PageFiles) -> AsyncIterator[str]:
    """Yield the status whenever it has changed, and heartbeats in between."""
    told, quiet = "", 0
    while True:
        text = json.dumps(shown(look(), place))
        quiet += 1
        if text != told:
            told, quiet = text, 0
            yield f"data: {text}\n\n"
        elif quiet >= BEAT_TICKS:
            quiet = 0
            yield ": beat\n\n"
        await asyncio.sleep(TICK_S)


def shown(status: dict[str, Any], place: PageFiles) -> dict[str, Any]:
    """The status, with the list of runs that have a report here."""
    return status | {"reports": [run for run in _runs(status) if place.report(run) is not None]}


def _runs(status: dict[str, Any]) -> dict[str, Any]:
    federations = status.get("federations", {"": status})
    return {name: run for each in federations.values() for name, run in each["runs"].items()}
