"""HTTP endpoints of a service on loopback: /healthz, /readyz, /metrics, and the page.

It owns the server and the three endpoints; page.py owns the page. It serves on loopback only and
changes nothing. starlette and uvicorn are in the extra `page` and imported when an address is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.runtime.metrics import render, samples
from hdpvfl_mq.runtime.page import Look, PageFiles, is_loopback, routes

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_REFUSED = "this service answers on 127.0.0.1, localhost and [::1] only\n"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def application(look: Look, place: PageFiles) -> Starlette:
    """The web application that shows what `status` returns."""
    from starlette.applications import Starlette  # noqa: PLC0415 - an extra
    from starlette.responses import JSONResponse, PlainTextResponse  # noqa: PLC0415 - an extra
    from starlette.routing import Route  # noqa: PLC0415 - an extra

    def elsewhere(request: Request) -> Response | None:
        """Refuse a request that names another host."""
        return None if is_loopback(request) else PlainTextResponse(_REFUSED, status_code=403)

    async def healthz(request: Request) -> Response:
        return elsewhere(request) or JSONResponse({"alive": True})

    async def readyz(request: Request) -> Response:
        trouble = trouble_of(look())
        fields = {"ready": not trouble, "trouble": trouble}
        return elsewhere(request) or JSONResponse(fields, status_code=503 if trouble else 200)

    async def metrics(request: Request) -> Response:
        return elsewhere(request) or PlainTextResponse(render(samples(look())), media_type=_TEXT)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *routes(look, place),
        ]
    )


def trouble_of(status: dict[str, Any]) -> str:
    """Why a service is not ready; empty if it is ready."""
    if status["service"] == "broker" or status["connected"]:
        return ""
    return str(status["trouble"]) or "not connected to the broker yet"


async def serve(address: str, look: Look, place: PageFiles) -> None:
    """Serve on a loopback address for ever."""
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ImportError:
        raise OperatorError(
            "watch: starlette and uvicorn are missing; pip install 'hdpvfl-mq[page]'"
        ) from None

    class Server(uvicorn.Server):
        """A server that leaves signals to the service."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    host, port = address.rsplit(":", 1)
    settings = uvicorn.Config(
        application(look, place),
        host=host.strip("[]"),
        port=int(port),
        lifespan="off",
        log_config=None,
        access_log=False,
        limit_concurrency=32,
        timeout_keep_alive=5,
    )
    server = Server(settings)
    try:
        await server.serve()
    except SystemExit:  # uvicorn exits when it cannot bind
        raise OperatorError(
            f"watch = {address!r} cannot be used: stop what uses the port, or choose another"
        ) from None
