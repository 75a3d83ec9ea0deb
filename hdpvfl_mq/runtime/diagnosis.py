"""Why there is no connection to the broker, in one sentence for the person who can fix it.

It owns the sentences and the probe that distinguishes the cases: name, port, silence, keys. It
only opens a TCP connection and sends nothing over it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

PROBE_S = 5.0


def probe(endpoint: str) -> str:
    """Why TCP cannot reach `tcp://host:port`; empty if it can."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not _is_found(host):
        return f"the name {host} is not found: check 'broker' in party.toml, and the name server"
    try:
        with socket.create_connection((host, int(port)), timeout=PROBE_S):
            return ""
    except ConnectionRefusedError:
        return (
            f"{host} refuses port {port}: nobody listens there; start the broker's service, or "
            "correct the port in 'broker'"
        )
    except TimeoutError:
        return (
            f"{host} does not answer on port {port} within {PROBE_S:g} s: the host is down, or a "
            "firewall drops what is sent"
        )
    except OSError as broken:
        return f"{host} port {port} cannot be reached: {broken.strerror}"


def _is_found(host: str) -> bool:
    """Whether the name server knows a name; an answer that takes too long counts as no."""
    found: list[bool] = []

    def look() -> None:
        with suppress(OSError):
            found.append(bool(socket.getaddrinfo(host, None)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PROBE_S)
    return bool(found)


def refusal(trouble: str, federation: str) -> str:
    """Why a broker that TCP reaches does not admit this party."""
    if trouble == "own key refused":
        return (
            "the broker does not know this party's key: it was removed, or has never joined; ask "
            "the broker's operator for an invitation"
        )
    if trouble == "connected":
        return (
            f"the broker does not answer for federation {federation}: it hosts none of that name, "
            "or this party is not a member of it (compare 'federation' in party.toml), or it is an "
            "older program: upgrade the broker first"
        )
    return (
        "the server there does not have the broker's key that party.toml states: it is another "
        "broker, or one with new keys; join again with a new invitation"
    )


def sentence(endpoint: str, trouble: str, federation: str) -> str:
    """The sentence for an operator."""
    return probe(endpoint) or refusal(trouble, federation)
