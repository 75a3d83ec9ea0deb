"""Key files: one folder per party, secrets readable by their owner only.

It owns the files `sign.key`, `curve.key` (secret, hex), `public.toml` and, where these keys replace
others, `changes.json` and `former`; it knows no protocol.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w
import zmq
from nacl.signing import SigningKey, VerifyKey
from pydantic import ValidationError
from zmq.utils import z85

from hdpvfl_mq.errors import IntegrityError, OperatorError, PeerError
from hdpvfl_mq.runtime.files import create_private
from hdpvfl_mq.wire.key_change import all_keys, key_change
from schemas.ids import PartyId
from schemas.key_change import KeyChanges

_KEY_BYTES = 32
_CREDENTIALS = "$CREDENTIALS_DIRECTORY"
_CHANGES = "changes.json"
_FORMER = "former"  # the folder of the keys that these replaced


@dataclass(frozen=True)
class Keys:
    """A party's secret keys and their public keys."""

    signing: SigningKey = field(repr=False)
    curve_secret: bytes = field(repr=False)

    @property
    def verify_hex(self) -> str:
        """Public key that verifies this party's signatures, in hex."""
        return bytes(self.signing.verify_key).hex()

    @property
    def curve_public(self) -> bytes:
        """Public key for CURVE connections, 32 bytes."""
        return z85.decode(zmq.curve_public(z85.encode(self.curve_secret)))


def write_secret(path: Path, secret: bytes) -> None:
    """Write a new secret, readable by its owner only; an existing file is never replaced.

    The write is atomic: a process killed while writing leaves no partial secret.
    """
    create_private(path, secret.hex() + "\n")


def read_secret(path: Path, size: int) -> bytes:
    """Read a secret; refuses a file that other users can read."""
    try:
        # A service manager grants access by an ACL, which shows up as group permissions.
        is_credential = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY")
        if path.stat().st_mode & (0o007 if is_credential else 0o077):
            raise OperatorError(f"{path} can be read by others: chmod 600 {path}")
        secret = bytes.fromhex(path.read_text().strip())
    except OSError as missing:
        raise OperatorError(f"cannot read {path}: {missing.strerror}; see 'hdpvfl keys'") from None
    except ValueError:
        raise OperatorError(f"{path} does not hold a hexadecimal key") from None
    if len(secret) != size:
        raise OperatorError(f"{path} should hold {size} bytes in hexadecimal")
    return secret


def make_keys(folder: Path) -> Keys:
    """Make new keys in a folder that has none."""
    if (folder / "sign.key").exists():
        raise OperatorError(f"{folder} holds keys already; choose another folder")
    write_secret(folder / "sign.key", os.urandom(_KEY_BYTES))
    _, secret = zmq.curve_keypair()
    write_secret(folder / "curve.key", z85.decode(secret))
    keys = load_keys(folder)
    public = {"verify_key": keys.verify_hex, "curve_key": keys.curve_public.hex()}
    (folder / "public.toml").write_text(tomli_w.dumps(public))
    return keys


def load_keys(folder: Path) -> Keys:
    """Load the keys of a folder; $CREDENTIALS_DIRECTORY names the folder of a service manager."""
    if folder == Path(_CREDENTIALS):
        folder = Path(os.environ.get("CREDENTIALS_DIRECTORY", ""))
    return Keys(
        SigningKey(read_secret(folder / "sign.key", _KEY_BYTES)),
        read_secret(folder / "curve.key", _KEY_BYTES),
    )


def load_or_make_keys(folder: Path) -> Keys:
    """Load the keys of a folder, or make new ones if it has none."""
    return load_keys(folder) if (folder / "sign.key").exists() else make_keys(folder)


def replace_keys(old: Path, new: Path, party: PartyId) -> Keys:
    """Make new keys in a folder that has none; the old keys sign that the new keys replace them.

    The old folder stays, because runs that began with the old keys end with them.
    """
    former = load_keys(old)
    earlier = read_changes(old)
    if earlier is not None and earlier.party != party:
        raise OperatorError(f"{old} holds the keys of {earlier.party}, not of {party}")
    keys = make_keys(new)
    change = key_change(party, former.signing, keys.signing, keys.curve_public)
    before = () if earlier is None else earlier.changes
    changes = KeyChanges(party=party, changes=(*before, change))
    create_private(new / _FORMER, os.path.relpath(old, new) + "\n")
    create_private(new / _CHANGES, changes.model_dump_json(indent=1) + "\n")
    return keys


def load_ring(folder: Path) -> tuple[Keys, ...]:
    """The keys of a folder after all keys that they replaced and that are still there."""
    ring: list[Keys] = []
    seen: set[Path] = set()
    while folder not in seen:
        seen.add(folder)
        ring.insert(0, load_keys(folder))
        former = folder / _FORMER
        if not former.exists():
            break
        folder = Path(os.path.normpath(folder / former.read_text().strip()))
        if not (folder / "sign.key").exists():
            break
    return tuple(ring)


def read_changes(folder: Path) -> KeyChanges | None:
    """The key changes that led to the keys of a folder; None if they replace no others."""
    path = folder / _CHANGES
    return load_changes(path) if path.exists() else None


def load_changes(path: Path) -> KeyChanges:
    """Read a file of key changes, own or a peer's; signatures are not checked."""
    try:
        return KeyChanges.model_validate_json(path.read_bytes())
    except OSError as missing:
        raise OperatorError(f"cannot read {path}: {missing.strerror}") from None
    except ValidationError:
        raise IntegrityError(f"{path} holds no key changes: take an undamaged copy") from None


def former_keys(folder: Path, party: PartyId) -> tuple[VerifyKey, ...]:
    """The party's earlier public keys, which the keys of a folder replaced."""
    changes = read_changes(folder)
    if changes is None:
        return ()
    try:
        *former, newest = all_keys(changes)
    except PeerError as wrong:
        raise IntegrityError(f"{folder / _CHANGES}: {wrong}; copy it from a backup") from None
    if changes.party != party or newest != load_keys(folder).signing.verify_key:
        raise IntegrityError(f"{folder / _CHANGES} does not lead to the keys of {party} beside it")
    return tuple(former)
