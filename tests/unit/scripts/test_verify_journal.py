"""The independent verifier: both formats of journals, and what it says of neither.

Every tampered case is in tests/unit/audit; here is what only concerns the script itself.
"""

from __future__ import annotations

import ast
import json
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgpack
import numpy as np
import pytest

from hdpvfl_mq.audit.evidence import Evidence, Key, Transcript
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.wire.codec import decode_header, encode_header
from schemas.federation import FederationMessage
from schemas.messages import ROUTES, RunClosed, WithdrawReason
from schemas.methods import PrivateModel
from schemas.privacy import Release, SpendEvent
from schemas.records import Book, EnvelopeSent
from schemas.tensor import Tensor
from scripts import verify_journal
from scripts.verify_journal.formats import roots
from tests.evidence import edited, evidence_of, only, relinked, resigned, with_rows, write_run
from tests.federation import Federation, manifest, tables
from tests.samples import KINDS

pytestmark = pytest.mark.seconds

RECORDED = Path(__file__).parent / "format_1"
SCRIPT = Path(verify_journal.__file__).parent
METHODS = {"descent": {"batch_rows": 20}, "private_model": {"method": PrivateModel(columns_max=8)}}


@pytest.fixture(scope="module", params=METHODS)
def federation(request) -> Federation:
    made = Federation(manifest(**METHODS[request.param]), tables(44))
    made.simulate()
    return made


@pytest.fixture(scope="module", params=["descent", "one_round"])
def old(request) -> Evidence:
    """A run of the time before format 2, as it was recorded then; it has no ledgers."""
    made = Federation()  # the same keys: they follow from the names
    plain = lzma.decompress((RECORDED / f"{request.param}.journals").read_bytes())
    journals = msgpack.unpackb(plain, use_list=False, raw=False)
    keys = {p: Key(made.roles[p], bytes(k.verify_key)) for p, k in made.keys.items()}
    shown = {p: Transcript(p, {}, rows) for p, rows in journals.items()}
    return stamped(Evidence(made.manifest.run, keys, shown), "1")


def stamped(evidence: Evidence, name: str, *parties: str) -> Evidence:
    """The same journals under the name of a format."""
    shown = {
        p: replace(t, meta={"format": name, "run": evidence.run, "party": p})
        if p in parties or not parties
        else t
        for p, t in evidence.transcripts.items()
    }
    return replace(evidence, transcripts=shown)


def honest(federation: Federation) -> Evidence:
    return stamped(evidence_of(federation), "2")


def report(evidence: Evidence, folder: Path) -> tuple[list[str], dict[int, str]]:
    return verify_journal.report(write_run(evidence, folder))


def test_it_shares_no_code_with_the_project():
    nodes = [n for file in SCRIPT.glob("*.py") for n in ast.walk(ast.parse(file.read_text()))]
    named = [n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    named += [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    assert all(n.level < 2 for n in nodes if isinstance(n, ast.ImportFrom))
    allowed = {*sys.stdlib_module_names, "nacl"}
    assert {str(module).split(".")[0] for module in named} <= allowed


def test_it_knows_the_same_endings():
    words = {kind: set(stated.split()) for kind, (_, stated) in verify_journal.ENDINGS.items()}
    assert words["withdraw"] == set(get_args(WithdrawReason))
    assert words["run_closed"] == set(get_args(RunClosed.model_fields["outcome"].annotation))


def test_it_knows_the_same_routes():
    """Of messages in a run; what a federation says between runs is in no run's journal."""
    between = set(get_args(FederationMessage))
    ends = {
        kind: [{role[0] for role in roles} for roles in route]
        for kind, route in ROUTES.items()
        if KINDS[kind] not in between
    }
    stated = {kind: [*map(set, route)] for kind, route in verify_journal.ROUTES.items()}
    assert stated == ends


def test_an_honest_run_of_today_raises_no_alarm(federation, tmp_path):
    assert report(honest(federation), tmp_path) == (["2"], {})


def test_an_honest_run_of_format_1_raises_no_alarm(old, tmp_path):
    assert report(old, tmp_path) == (["1"], {})


def test_one_journal_alone_raises_no_alarm(federation, tmp_path):
    whole = honest(federation)
    alone = replace(whole, transcripts={"shop": whole.transcripts["shop"]}, ledgers={})
    assert report(alone, tmp_path) == (["2"], {})


@pytest.mark.parametrize("name", ["settings", "members"])
def test_keys_beside_the_journals_of_a_service_are_read(federation, name, tmp_path):
    """Bug: of runs of services it found no keys, and every signature seemed forged."""
    run = write_run(honest(federation), tmp_path)
    keys = run / "settings" / "members.toml"
    keys.rename(run / "shop" / f"{name}.toml")
    assert verify_journal.report(run) == (["2"], {})
    table = (run / "shop" / f"{name}.toml").read_text()
    (run / "bank" / "members.toml").write_text(table.replace('role = "active"', 'role = "passive"'))
    assert "another key or role" in verify_journal.verify(run)[1]


def test_a_format_that_is_not_its_own_is_noticed(federation, old, tmp_path):
    for number, evidence in enumerate((stamped(honest(federation), "1"), stamped(old, "2"))):
        assert 1 in report(evidence, tmp_path / str(number))[1]


def test_an_unknown_format_and_a_mixture_are_noticed(federation, tmp_path):
    unknown = report(stamped(honest(federation), "3"), tmp_path / "unknown")
    mixed = report(stamped(honest(federation), "1", "shop"), tmp_path / "mixed")
    assert (unknown[0], mixed[0]) == (["3"], ["1", "2"])
    assert 1 in unknown[1]
    assert 1 in mixed[1]


def test_a_folder_without_journals_is_no_pass(tmp_path):
    assert 1 in verify_journal.verify(tmp_path)


def test_what_is_charged_but_stays_inside_counts_as_paid(federation, tmp_path):
    """A release that is booked beyond the reserve is noticed though no message shows it."""
    evidence = replace(honest(federation), ledgers={})
    shop = list(evidence.transcripts["shop"].records)
    event = SpendEvent(
        release_id="test-run/shop/statistics/0",
        round=0,
        mechanism="lattice_gaussian",
        mu2_units=2**30,
        tau_units=0,
    )
    inside = Release(
        release_id=event.release_id,
        tensor=Tensor.of(np.zeros(1, dtype=np.int64)),
        exponent=0,
        noise_std=1.0,
        event=event,
    )
    shop[-1] = edited(shop[-1], effects=(*shop[-1].effects, Book(release=inside)))
    found = report(with_rows(evidence, "shop", relinked(shop)), tmp_path)[1]
    assert set(found) >= {9, 12}


def test_the_program_names_the_format_and_its_exit_code_says_what_it_found(federation, tmp_path):
    run = write_run(honest(federation), tmp_path)
    for folder, code in ((run, 0), (tmp_path / "nothing", 5)):
        done = subprocess.run(
            [sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        said = json.loads(done.stdout)
        assert said["formats"] == (["2"] if code == 0 else [])
        assert bool(said["found"]) == bool(code)


def test_roots_are_those_of_the_tree_that_grows():
    digests, tree = [bytes([number]) * 32 for number in range(40)], Tree()
    expected = [tree.root()]
    for digest in digests:
        tree.append(digest)
        expected.append(tree.root())
    assert roots(digests) == expected


@pytest.mark.parametrize(
    "stated", [{}, {"head": bytes(32)}, {"root": bytes(32)}, {"size": 1}], ids=lambda it: str([*it])
)
def test_a_signed_envelope_that_states_another_journal_is_found(federation, stated, tmp_path):
    shown = only(honest(federation), "shop", ledgers=True)
    steps = list(shown.transcripts["shop"].records)
    at, frames = next(
        (record.index, effect.frames)
        for record in reversed(steps)
        for effect in record.effects
        if isinstance(effect, EnvelopeSent)
    )
    header = decode_header(frames)
    said = encode_header(type(header)(**{**dict(header), **stated}))
    signed = resigned((said, *frames[1:]), federation.keys["shop"])
    effects = tuple(
        EnvelopeSent(frames=signed) if getattr(each, "frames", None) == frames else each
        for each in steps[at].effects
    )
    steps[at] = edited(steps[at], effects=effects)
    _, found = report(with_rows(shown, "shop", relinked(steps)), tmp_path)
    assert list(found) == ([4] if stated else [])
