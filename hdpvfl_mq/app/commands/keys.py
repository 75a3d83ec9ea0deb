"""`hdpvfl keys`, `rotate` and `key-change`: make keys, replace them, accept a peer's new keys.

It owns the options and what is printed; runtime/keys.py handles files, wire/ signatures. Imports
are late, because `hdpvfl --help` should not load zmq.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.parsing import add_command
from hdpvfl_mq.errors import IntegrityError, NetworkError, OperatorError, PeerError

ROTATED_S, POLL_S = 20.0, 0.2


def add_key_commands(commands: Any) -> None:
    """Add these commands to the parser."""
    made = add_command(
        commands,
        "keys",
        "make the keys of a party or a broker",
        keys,
        examples=(
            "hdpvfl keys keys",
            "hdpvfl keys new-keys --replace keys --party shop",
        ),
    )
    made.add_argument("folder", type=Path, help="a folder that has no keys yet")
    made.add_argument("--replace", type=Path, metavar="OLD", help="folder of the old keys")
    made.add_argument("--party", help="with --replace: the name of this party")
    renew = add_command(
        commands,
        "rotate",
        "replace this party's keys in its federation",
        rotate,
        examples=("hdpvfl rotate",),
    )
    renew.add_argument("--settings", type=Path, help="the service's file (default: party.toml)")
    change = add_command(
        commands,
        "key-change",
        "check a peer's new keys against its old key",
        key_change,
        examples=("hdpvfl key-change changes.json --party shop --known 8c1f",),
    )
    change.add_argument("file", type=Path, help="changes.json, as the peer sent it")
    change.add_argument("--party", required=True, help="name of the peer")
    change.add_argument("--known", required=True, metavar="HEX", help="the peer's old verify_key")


def keys(options: argparse.Namespace) -> int:
    """Make new keys, or new keys that replace old ones."""
    from hdpvfl_mq.runtime.keys import make_keys, replace_keys  # noqa: PLC0415 - start-up

    if (options.replace is None) != (options.party is None):
        raise OperatorError("--replace OLD and --party NAME go together")
    if options.replace is None:
        made, give = make_keys(options.folder), "public.toml"
    else:
        made, give = replace_keys(options.replace, options.folder, options.party), "changes.json"
    if options.json:
        print(json.dumps({"verify_key": made.verify_hex, "curve_key": made.curve_public.hex()}))
    else:
        print(f"secrets in {options.folder}, readable by you only; give the others its {give}")
    return 0


def rotate(options: argparse.Namespace) -> int:
    """Make new keys, write them into party.toml and let the service tell the others."""
    from hdpvfl_mq.app.commands.services import ask, show  # noqa: PLC0415 - start-up
    from hdpvfl_mq.runtime.files import write_private  # noqa: PLC0415 - start-up
    from hdpvfl_mq.runtime.in_short import KEYS_KNOWN  # noqa: PLC0415 - start-up
    from hdpvfl_mq.runtime.keys import replace_keys  # noqa: PLC0415 - start-up
    from hdpvfl_mq.runtime.settings import load_settings  # noqa: PLC0415 - start-up
    from schemas.config import PartyServiceSettings  # noqa: PLC0415 - start-up

    path = options.settings or Path("party.toml")
    settings = load_settings(PartyServiceSettings, path)
    if settings.keys.startswith("$"):
        raise OperatorError(
            f"{path}: a service manager holds the keys, so this program cannot replace them; "
            "docs/operations/keys.md has the steps"
        )
    # Replace one line of the text: a TOML writer would drop the operator's comments.
    text, line = path.read_text(), re.compile(r"^keys *=.*$", re.MULTILINE)
    old = Path(settings.keys)
    new = _next_folder(old)
    if line.search(text) is None:
        raise OperatorError(
            f"{path}: write the folder of the keys on a line of its own, keys = ..."
        )
    replace_keys(old, new, settings.party)
    write_private(path, line.sub(lambda _: f"keys = {json.dumps(str(new))}", text, count=1))
    answer = {"party": settings.party, "keys": str(new), "former": str(old)}
    try:
        ask(options, "replace_keys", folder=str(new))
    except NetworkError:
        said = f"new keys in {new}; they take effect when the service starts: hdpvfl party"
        return show(options, {**answer, "known": False}, lambda: print(said))
    until = time.monotonic() + ROTATED_S
    while not (known := ask(options, "status")["keys"] == KEYS_KNOWN) and time.monotonic() < until:
        time.sleep(POLL_S)
    said = f"new keys in {new}; the broker " + (
        "has them and tells the others" if known else "does not answer yet: see 'hdpvfl status'"
    )
    said += f". Keep {old}: runs that began with it end with it"
    return show(options, {**answer, "known": known}, lambda: print(said))


def _next_folder(old: Path) -> Path:
    stem = re.sub(r"-\d+$", "", old.name)
    number = 2
    while (old.parent / f"{stem}-{number}").exists():
        number += 1
    return old.parent / f"{stem}-{number}"


def key_change(options: argparse.Namespace) -> int:
    """Print the peer's new keys if the old key signed them."""
    from hdpvfl_mq.runtime.keys import load_changes  # noqa: PLC0415 - start-up
    from hdpvfl_mq.wire.key_change import newest_keys  # noqa: PLC0415 - start-up

    try:
        known = bytes.fromhex(options.known)
    except ValueError:
        raise OperatorError("--known: 64 hexadecimal digits, the peer's verify_key") from None
    try:
        verify_key, curve_key = newest_keys(load_changes(options.file), options.party, known)
    except PeerError as wrong:
        raise IntegrityError(f"{options.file}: {wrong}; ask the peer by another channel") from None
    if options.json:
        print(json.dumps({"verify_key": verify_key.hex(), "curve_key": curve_key.hex()}))
    else:
        print(f"# {options.party}: signed by the key you know; put these into your settings")
        print(f'verify_key = "{verify_key.hex()}"\ncurve_key = "{curve_key.hex()}"')
    return 0
