"""All checks over one run, from a folder or a bundle."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
import zipfile
from pathlib import Path

from nacl.signing import VerifyKey

from . import chains, ledgers, plans, releases
from .formats import sha
from .run import Run

# The two files about a bundle, the fields of its index, and the names of its other files.
BUNDLE, INDEX = ("evidence", "signatures"), {"format", "run", "made_at", "version"}
INDEX |= {"journals", "files"}
FILE = r"([A-Za-z0-9_-][A-Za-z0-9._-]{0,63}/)?[a-z]+\.(db|toml)"

# Each step, and the check that fails if the step cannot be done.
STEPS = {
    1: chains.journals_hold,
    2: chains.parts_hold,
    3: chains.envelopes_hold,
    6: plans.messages_legal,
    7: plans.plan_followed,
    8: releases.releases_paid,
    9: releases.scores_answered,
    12: ledgers.caps_kept,
    10: ledgers.ledgers_hold,
}


def report(
    folder: Path, ledgers: Path | None = None, members: Path | None = None
) -> tuple[list[str], dict[int, str]]:  # the formats seen, and what each check found
    try:
        run = Run(folder, ledgers, members)
    except Exception as broken:  # noqa: BLE001 - whatever cannot be read is a finding
        return [], {1: f"cannot be read: {broken}"}
    for number, step in STEPS.items():
        try:
            step(run)
        except Exception as broken:  # noqa: BLE001 - whatever breaks a check is a finding
            run.check(number, False, "cannot be checked", f"{type(broken).__name__} {broken}")
    seen = sorted({meta.get("format", "unknown") for meta in run.meta.values()})
    return seen, dict(sorted(run.found.items()))


def report_bundle(
    bundle: Path, members: Path | None = None
) -> tuple[list[str], dict[int, str]]:  # a bundle's digests and signatures, then its run
    if not zipfile.is_zipfile(bundle):
        return [], {1: f"{bundle} is not a whole bundle: it is cut off or another file"}
    with tempfile.TemporaryDirectory() as base:
        try:
            packed = zipfile.ZipFile(bundle)
            plain, signatures = (packed.open(f"{n}.json").read(2**20) for n in BUNDLE)
            index = json.loads(plain)
            run, names = Path(base) / index["run"], [f["name"] for f in index["files"]]
            if sorted([*names, *(f"{n}.json" for n in BUNDLE)]) != sorted({*packed.namelist()}):
                raise ValueError("the files of the bundle do not match its index")
            held = packed.infolist()
            shown = [n.partition("/")[0] for n in names if n.endswith("/journal.db")]
            size = sum(f["bytes"] for f in index["files"])
            known = set(index) == INDEX and index["format"] == 1 and run.parent == Path(base)
            known &= len(held) == len(names) + 2 and sorted(shown) == sorted(index["journals"])
            known &= size <= 100 * sum(one.compress_size for one in held) + 2**24
            if not known or not all(re.fullmatch(FILE, name) for name in names):
                raise ValueError("an index of another format, or files that are not evidence")
            for file in index["files"]:
                content = packed.open(file["name"]).read(file["bytes"] + 1)
                path = run / file["name"]
                if (sha(content).hex(), len(content)) != (file["sha256"], file["bytes"]):
                    raise ValueError(f"{file['name']} is not the file that its index names")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            table = tomllib.loads((members or run / "members.toml").read_text())
            keys = {m["party"]: bytes.fromhex(m["verify_key"]) for m in table["members"]}
            for one in json.loads(signatures)["signatures"]:
                signed = sha(b"hdpvfl-mq evidence 1\0", plain)
                VerifyKey(keys[one["party"]]).verify(signed, bytes.fromhex(one["signature"]))
        except Exception as broken:  # noqa: BLE001 - whatever cannot be read is a finding
            return [], {1: f"the bundle cannot be believed: {type(broken).__name__} {broken}"}
        return report(run, run, members or run / "members.toml")


def verify(*paths: Path) -> dict[int, str]:
    return report(*paths)[1]


def main(words: list[str]) -> int:
    """Print what was found; returns the exit code."""
    show = report_bundle if Path(words[0]).is_file() else report
    seen, found = show(*map(Path, words))
    print(json.dumps({"formats": seen, "found": found}, indent=1))
    return 0 if not found else 5 if min(found) <= 5 else 1
