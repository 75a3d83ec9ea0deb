"""`hdpvfl evidence`: one signed and dated file with everything an auditor needs about a run.

It owns which files and keys of this machine are used and what the command prints;
hdpvfl_mq/audit/bundle.py defines the contents of a bundle.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from hdpvfl_mq import __version__
from hdpvfl_mq.app.commands.audit import ledgers_beside
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.app.refold import settings_file
from hdpvfl_mq.audit.bundle import Stamp, pack
from hdpvfl_mq.audit.reader import run_folder
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from schemas.bundle import BundleIndex
from schemas.config import BrokerSettings, PartySettings
from schemas.ids import COORDINATOR, PartyId


@dataclass(frozen=True)
class EvidenceOptions:
    """Options of `hdpvfl evidence`."""

    folder: Path
    out: Path | None = None
    parties: tuple[str, ...] = ()
    ledgers: Path | None = None
    as_json: bool = False


def command(options: argparse.Namespace) -> int:
    """`hdpvfl evidence` with parsed options."""
    return bundle(
        EvidenceOptions(
            run_folder(options.run, options.runs),
            options.out,
            tuple(options.party),
            options.ledgers,
            as_json=options.json,
        )
    )


def bundle(options: EvidenceOptions) -> int:
    """Write the bundle and print what it holds and how to check it."""
    here = tuple(sorted(p.parent.name for p in options.folder.glob("*/journal.db")))
    missing = [party for party in options.parties if party not in here]
    if missing:
        raise SettingsError(f"{options.folder} holds no journal of {', '.join(missing)}")
    journals = options.parties or here
    out = options.out or Path(f"{options.folder.name}-evidence.zip")
    if not out.parent.is_dir():
        raise SettingsError(f"-o {out}: there is no folder {out.parent}; make it first")
    keys = signing_keys(options.folder, journals)
    stamp = Stamp(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}", __version__, keys)
    index = pack(
        out,
        options.folder,
        journals=journals,
        ledgers=options.ledgers or ledgers_beside(options.folder),
        stamp=stamp,
    )
    _tell(options, out, index, tuple(keys))
    return 0


def _tell(
    options: EvidenceOptions, out: Path, index: BundleIndex, signers: tuple[PartyId, ...]
) -> None:
    if options.as_json:
        print(json.dumps({"bundle": str(out), "signed_by": signers, **index.model_dump()}))
        return
    say(f"{out}: {out.stat().st_size:,} bytes, made {index.made_at}")
    for each in index.files:
        say(f"  {each.name} ({each.bytes:,} bytes)")
    say(f"signed by {', '.join(signers)}")
    shown = {each.name.partition("/")[0] for each in index.files if "ledger" in each.name}
    bare = sorted(set(index.journals) - shown - {COORDINATOR})
    if bare:
        say(f"without a ledger of {', '.join(bare)}: none was found, or it has entries of format")
        say("1, which would test guesses about rows (docs/audit.md); see --ledgers")
    say(
        "It holds what was sent and received and what it cost, of every run in the ledgers; no "
        "rows and no secrets; of a private model the noised statistics that were paid for, "
        "from which its weights follow. Whoever has it checks it with"
    )
    print(f"  hdpvfl audit {out}")


def signing_keys(folder: Path, parties: Iterable[PartyId]) -> dict[PartyId, SigningKey]:
    """The keys of the parties on this machine; at least one party must sign."""
    found = {}
    for party in parties:
        path = settings_file(folder, party)
        if path.exists():
            settings: BrokerSettings | PartySettings = (
                load_settings(BrokerSettings, path)
                if party == COORDINATOR
                else load_settings(PartySettings, path)
            )
            found[party] = load_keys(Path(settings.keys)).signing
    if not found:
        raise SettingsError(
            f"no settings of {', '.join(parties)} in {folder}, so nobody can sign: run this on "
            "the machine of a party"
        )
    return found
