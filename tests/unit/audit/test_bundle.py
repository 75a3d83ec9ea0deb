"""Evidence bundles: both verifiers believe a whole one, and neither believes a changed one."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.app.commands.audit import AuditOptions, audit_bundle
from hdpvfl_mq.audit.bundle import INDEX, MEMBERS, SIGNATURES, Stamp, pack, unpacked
from hdpvfl_mq.audit.reader import run_folder
from hdpvfl_mq.errors import IntegrityError, SettingsError
from schemas.bundle import BundleFile
from scripts import verify_journal
from tests.evidence import evidence_of, write_run
from tests.federation import Federation, manifest, tables

pytestmark = pytest.mark.seconds

SCRIPT = Path(verify_journal.__file__).parent
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def federation() -> Federation:
    made = Federation(manifest(batch_rows=20), tables(44))
    made.simulate()
    return made


@pytest.fixture(scope="module")
def bundle(federation, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    run = write_run(evidence_of(federation), folder)
    with closing(sqlite3.connect(run / "shop" / "ledger.db")) as ledger, ledger:
        ledger.execute("CREATE TABLE sketch (secret)")
        ledger.execute("INSERT INTO sketch VALUES ('the secret of the ids')")
    stamp = Stamp("2026-11-17T00:00:00Z", "0.1.0", {"bank": federation.keys["bank"]})
    out = folder / "bundle.zip"
    pack(out, run, journals=tuple(federation.journals), ledgers=None, stamp=stamp)
    return out


def files_of(bundle: Path) -> Files:
    with zipfile.ZipFile(bundle) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def written(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def test_a_whole_bundle_passes_and_says_who_signed(bundle, capsys):
    assert audit_bundle(AuditOptions(bundle)) == 0
    said = capsys.readouterr().out
    assert "made 2026-11-17T00:00:00Z" in said
    assert "signed by bank" in said
    assert "compare with each party" in said


def test_the_independent_verifier_needs_the_bundle_alone(bundle, tmp_path):
    alone = tmp_path / "elsewhere.zip"
    alone.write_bytes(bundle.read_bytes())
    carried = shutil.copytree(SCRIPT, tmp_path / "carried" / "verifier")
    done = subprocess.run(
        [sys.executable, str(carried), str(alone)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert json.loads(done.stdout)["found"] == {}
    assert done.returncode == 0


def test_only_the_chains_leave(bundle):
    for name, content in files_of(bundle).items():
        assert b"the secret of the ids" not in content, name
    with unpacked(bundle) as opened:
        for path in opened.folder.rglob("*.db"):
            with closing(sqlite3.connect(path)) as database:
                found = {n for (n,) in database.execute("SELECT name FROM sqlite_master")}
            assert found <= {"meta", "records", "entry"}


def test_a_ledger_that_tests_guesses_about_rows_stays(federation, tmp_path):
    run = write_run(evidence_of(federation), tmp_path)
    with closing(sqlite3.connect(run / "shop" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE entry SET opening = NULL WHERE sequence = 1")  # as in format 1
    stamp = Stamp("2026-11-17T00:00:00Z", "0.1.0", {"shop": federation.keys["shop"]})
    index = pack(tmp_path / "b.zip", run, journals=("shop", "bank"), ledgers=None, stamp=stamp)
    names = {each.name for each in index.files}
    assert names == {"shop/journal.db", "bank/journal.db", "bank/ledger.db", MEMBERS}


def changed_index(held: Files, **changes) -> Files:
    index = json.loads(held[INDEX]) | changes
    return {**held, INDEX: json.dumps(index).encode()}


def with_changed_journal(files: Files) -> Files:
    """A consistent index, but nobody signed it."""
    name = "shop/journal.db"
    content = files[name] + b"\0"
    listed = json.loads(files[INDEX])["files"]
    other = {"name": name, "sha256": verify_journal.sha(content).hex(), "bytes": len(content)}
    return changed_index(
        {**files, name: content}, files=[other if f["name"] == name else f for f in listed]
    )


def relisted(files: Files) -> Files:
    """An index that lists these files and that nobody has signed."""
    listed = [
        {"name": name, "sha256": verify_journal.sha(content).hex(), "bytes": len(content)}
        for name, content in sorted(files.items())
        if name not in (INDEX, SIGNATURES)
    ]
    unsigned = {**files, SIGNATURES: b'{"signatures": []}'}
    return changed_index(unsigned, files=listed)


def a_view() -> bytes:
    """A database whose table of records is a query without an end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE meta (key TEXT, value TEXT)")
            database.execute(
                "CREATE VIEW records AS WITH RECURSIVE n(idx) AS (SELECT 0 UNION ALL "
                "SELECT idx + 1 FROM n) SELECT idx, zeroblob(9) AS record, "
                "zeroblob(32) AS digest FROM n"
            )
        return path.read_bytes()


def a_formula(words: str) -> bytes:
    """A database with one short record that becomes long when it is read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE meta (key TEXT, value TEXT)")
            database.execute(
                f"CREATE TABLE records (idx INTEGER, record BLOB {words} (zeroblob(9 * idx)), "
                "digest BLOB)"
            )
            database.execute("INSERT INTO records (idx, digest) VALUES (0, zeroblob(32))")
        return path.read_bytes()


TAMPERED: dict[str, Callable[[Files], Files]] = {
    "a file changed": lambda f: {**f, MEMBERS: f[MEMBERS] + b"\n"},
    "a file changed and listed so": with_changed_journal,
    "a file removed": lambda f: {k: v for k, v in f.items() if k != "shop/ledger.db"},
    "a file added": lambda f: {**f, "shop/notes.toml": b""},
    "another date": lambda f: changed_index(f, made_at="2020-01-01T00:00:00Z"),
    "a path outside": lambda f: changed_index(
        {**f, "../outside.db": b""},
        files=[
            *json.loads(f[INDEX])["files"],
            {"name": "../outside.db", "sha256": verify_journal.sha(b"").hex(), "bytes": 0},
        ],
    ),
    "a signature of somebody else": lambda f: {
        **f,
        SIGNATURES: f[SIGNATURES].replace(b'"bank"', b'"shop"'),
    },
    "an index that is none": lambda f: {**f, INDEX: b"[]"},
    "another size": lambda f: changed_index(
        relisted(f),
        files=[each | {"bytes": each["bytes"] + 1} for each in json.loads(f[INDEX])["files"]],
    ),
    "a journal less than it says": lambda f: changed_index(relisted(f), journals=["bank", "zoo"]),
    "a field too many": lambda f: changed_index(relisted(f), remark="believe me"),
    "a format to come": lambda f: changed_index(relisted(f), format=2),
    "a run elsewhere": lambda f: changed_index(relisted(f), run="../elsewhere"),
    "a file of another kind": lambda f: relisted({**f, "shop/run.sh": b"rm"}),
    "a file in a deeper folder": lambda f: relisted({**f, "shop/a/b.db": b""}),
    "a file twice in the index": lambda f: changed_index(
        relisted(f), files=[*json.loads(f[INDEX])["files"], json.loads(f[INDEX])["files"][0]]
    ),
    "members without an end": lambda f: relisted({**f, MEMBERS: b"a = " + b"[" * 200_000}),
    "a bomb": lambda f: relisted({**f, "shop/ledger.db": bytes(100 * 2**20)}),
    "a journal that is computed": lambda f: relisted({**f, "shop/journal.db": a_view()}),
    "a file that grows": lambda f: {**f, MEMBERS: f[MEMBERS] + b"#" * 100_000},
}


def test_names_in_an_index_stay_inside_the_folder():
    entry = {"sha256": "0" * 64, "bytes": 0}
    assert BundleFile(name="shop/journal.db", **entry)
    for name in ("../a.db", "/a.db", "a/b/c.db", "a/../b.db", "..", "a\\b.db", "-/../x.db"):
        with pytest.raises(ValidationError):
            BundleFile(name=name, **entry)


@pytest.mark.parametrize("kind", TAMPERED)
def test_a_changed_bundle_is_believed_by_neither(bundle, tmp_path, kind):
    path = written(tmp_path / "changed.zip", TAMPERED[kind](files_of(bundle)))
    with pytest.raises(IntegrityError):
        audit_bundle(AuditOptions(path))
    assert verify_journal.report_bundle(path)[1]
    assert not (tmp_path.parent / "outside.db").exists()


@pytest.mark.parametrize("words", ["GENERATED ALWAYS AS", "AS"])
def test_a_column_with_a_formula_is_read_by_neither(bundle, tmp_path, words):
    """Bug: SQLite also takes the short form, which both verifiers read."""
    files = relisted({**files_of(bundle), "shop/journal.db": a_formula(words)})
    path = written(tmp_path / "formula.zip", files)
    with pytest.raises(IntegrityError, match="computes records instead of storing it"):
        audit_bundle(AuditOptions(path))
    assert "computes what it should store" in str(verify_journal.report_bundle(path)[1])


def test_a_name_twice_in_the_archive_is_believed_by_neither(bundle, tmp_path):
    """Programs differ in which of two entries they take."""
    files, path = relisted(files_of(bundle)), tmp_path / "twice.zip"
    written(path, {"shop/journal.db": b"the first"})
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as packed:
        warnings.simplefilter("ignore")  # zipfile warns of what this test is about
        for name, content in files.items():
            packed.writestr(name, content)
    with pytest.raises(IntegrityError):
        audit_bundle(AuditOptions(path))
    assert verify_journal.report_bundle(path)[1]


def test_a_bundle_that_nobody_signed_is_read_and_said_so(bundle, tmp_path, capsys):
    path = written(tmp_path / "unsigned.zip", relisted(files_of(bundle)))
    assert audit_bundle(AuditOptions(path)) == 0
    assert "signed by nobody" in capsys.readouterr().out
    assert verify_journal.report_bundle(path)[1] == {}


def test_keys_from_elsewhere_are_believed_instead(bundle, federation, tmp_path):
    own = files_of(bundle)[MEMBERS].decode()
    key = bytes(federation.keys["bank"].verify_key).hex()
    other = bytes(federation.keys["shop"].verify_key).hex()
    members = tmp_path / "known.toml"
    members.write_text(own.replace(key, other))
    with pytest.raises(IntegrityError, match="and the bundle state different keys for bank"):
        audit_bundle(AuditOptions(bundle, members=members))
    assert verify_journal.report_bundle(bundle, members)[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("root:x:0:0:root:/root:/bin/bash\n", "is not a file of members' keys"),
        ('[[members]]\nparty = "shop"\nrole = "passive"\nverify_key = "{key}"\n', "no key of bank"),
        ("bind = 1\n", "no public keys in"),
    ],
)
def test_another_file_given_as_members_is_said_so(bundle, federation, tmp_path, content, words):
    members = tmp_path / "given.toml"
    key = bytes(federation.keys["shop"].verify_key).hex()
    members.write_text(content.replace("{key}", key))
    with pytest.raises(SettingsError, match=words) as wrong:
        audit_bundle(AuditOptions(bundle, members=members))
    assert "given.toml" in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_file_that_is_no_bundle_is_said_so_by_both_and_by_the_commands(tmp_path, capsys):
    cut = tmp_path / "cut.zip"
    cut.write_bytes(b"PK and then nothing")
    assert "not a whole bundle" in verify_journal.report_bundle(cut)[1][1]
    for command in (["audit"], ["report"], ["replay", "--party", "bank"]):
        assert main([command[0], str(cut), *command[1:]]) == 2
        assert "neither a run's folder nor a whole bundle" in capsys.readouterr().err


def test_a_zip_that_is_no_bundle_is_said_so(tmp_path):
    with (
        pytest.raises(SettingsError, match="hdpvfl evidence"),
        unpacked(written(tmp_path / "other.zip", {"a": b"b"})),
    ):
        pass


def test_a_cut_zip_is_no_bundle(bundle, tmp_path):
    cut = tmp_path / "cut.zip"
    whole = bundle.read_bytes()
    cut.write_bytes(whole[: len(whole) // 2] + whole[len(whole) // 2 + 100 :])
    with pytest.raises(IntegrityError):
        audit_bundle(AuditOptions(cut))


def test_the_latest_run_of_a_service_is_its_newest_training(tmp_path):
    """'hdpvfl up' keeps a link runs/latest; a service does not."""
    runs = tmp_path / "runs"
    for age, name in ((30, "old"), (20, "new"), (10, "new-scores-1")):
        folder = runs / name / "bank"
        folder.mkdir(parents=True)
        kept = ["journal.db"] if "scores" in name else ["journal.db", "model.json"]
        for each in kept:
            (folder / each).touch()
            os.utime(folder / each, (1e9 - age, 1e9 - age))
    assert run_folder("latest", runs).name == "new"
    with pytest.raises(SettingsError, match="--runs"):
        run_folder("latest", tmp_path / "elsewhere")
