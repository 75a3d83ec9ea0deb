"""Key files: one folder per party, secrets readable by their owner only.

It owns the files `sign.key`, `curve.key` (secret, hex) and `public.toml`; it knows no protocol.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from nacl.signing import SigningKey
from zmq.utils import z85

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.runtime.files import create_private

_KEY_BYTES = 32


@dataclass(frozen=True)
class Keys:
    """A party's secrets and the public halves."""

    signing: SigningKey = field(repr=False)
    curve_secret: bytes = field(repr=False)

    @property
    def verify_hex(self) -> str:
        """Public key of signatures."""
        return bytes(self.signing.verify_key).hex()

    @property
    def curve_public(self) -> bytes:
        """Public key of connections, 32 bytes."""
        return z85.decode(zmq.curve_public(z85.encode(self.curve_secret)))


def write_secret(path: Path, secret: bytes) -> None:
    """Write a secret once, for its owner only; an existing file is never replaced.

    The file appears whole or not at all: a process killed while writing leaves no half secret.
    """
    create_private(path, secret.hex() + "\n")


def read_secret(path: Path, size: int) -> bytes:
    """Read a secret back; refuses a file that others can read."""
    try:
        if path.stat().st_mode & 0o077:
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
    """New keys in a folder that has none."""
    if (folder / "sign.key").exists():
        raise OperatorError(f"{folder} holds keys already; choose another folder")
    write_secret(folder / "sign.key", os.urandom(_KEY_BYTES))
    _, secret = zmq.curve_keypair()
    write_secret(folder / "curve.key", z85.decode(secret))
    keys = load_keys(folder)
    (folder / "public.toml").write_text(
        f'verify_key = "{keys.verify_hex}"\ncurve_key = "{keys.curve_public.hex()}"\n'
    )
    return keys


def load_keys(folder: Path) -> Keys:
    """The keys of a folder."""
    return Keys(
        SigningKey(read_secret(folder / "sign.key", _KEY_BYTES)),
        read_secret(folder / "curve.key", _KEY_BYTES),
    )
