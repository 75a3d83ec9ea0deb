"""Data sets from packages, a folder and the web; dealing their rows and columns."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.data import bundled, fetch
from hdpvfl_mq.data.bundled import describe, load_dataset
from hdpvfl_mq.data.cards import CARDS
from hdpvfl_mq.data.fetch import PublicSource, content_digest, cut_adult, cut_credit, cut_dvisits
from hdpvfl_mq.data.packaged import PACKAGED
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.splits import deal, held_out
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import NetworkError, SettingsError
from hdpvfl_mq.glm.families import FAMILIES

pytestmark = pytest.mark.seconds

FOLDER = Path(os.environ["HDPVFL_DATA"]) if os.environ.get("HDPVFL_DATA") else None
needs_folder = pytest.mark.skipif(FOLDER is None, reason="needs HDPVFL_DATA")
LABEL_SUMS = {"visits": 13882, "breast": 357, "randhie": 57752, "diabetes": 67243, "meps": 13368795}


packaged = cache(load_dataset)  # a set is read once, and no test changes it


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_sets_have_the_described_shape(name: str) -> None:
    data = packaged(name)
    card = data.card
    assert data.active.rows == data.passive.rows == card.rows
    assert (len(data.active.names) - 2, len(data.passive.names) - 1) == card.columns
    assert data.active.names[:2] == ("id", "y")
    assert sorted(data.active["id"].tolist()) == sorted(data.passive["id"].tolist())
    assert data.active["id"].tolist() != data.passive["id"].tolist()
    if card.classes:
        assert tuple(sorted(set(data.active["y"].tolist()))) == card.classes
    else:
        assert float(data.active["y"].sum()) == pytest.approx(LABEL_SUMS[name])


def by_id(table: Table) -> Iterator[np.ndarray]:
    """Every column, rows in the order of ids; numbers where it holds numbers, however spelt."""
    order = np.argsort(np.asarray(table["id"], dtype=float))
    for name in table.names:
        try:
            yield np.asarray(table[name], dtype=float)[order]
        except ValueError:  # names of classes
            yield table[name][order]


@needs_folder
@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_sets_equal_the_folder(name: str) -> None:
    ours, theirs = packaged(name), load_dataset(name, folder=FOLDER)
    for table, other in ((ours.active, theirs.active), (ours.passive, theirs.passive)):
        assert table.names == other.names
        for mine, wanted in zip(by_id(table), by_id(other), strict=True):
            np.testing.assert_array_equal(mine, wanted)


@needs_folder
@pytest.mark.parametrize("name", [name for name in CARDS if name not in PACKAGED])
def test_checksums_of_published_sets_are_those_of_the_folder(name: str) -> None:
    data = load_dataset(name, folder=FOLDER)
    public = data.card.public
    assert public is not None
    assert content_digest(data.active, data.passive) == public.sha256


@needs_folder
@pytest.mark.parametrize(
    ("name", "common", "alone"),
    [("breast", 467, 51), ("credit", 24546, 2727), ("adult", 26641, 2960)],
)
def test_overlap_files(name: str, common: int, alone: int) -> None:
    data = load_dataset(f"{name}_overlap", folder=FOLDER)
    _check_overlap(data.active, data.passive, common, alone)


def test_overlap_is_made_where_there_is_no_file() -> None:
    data = load_dataset("breast_overlap")
    _check_overlap(data.active, data.passive, 467, 51)


def _check_overlap(active: Table, passive: Table, common: int, alone: int) -> None:
    left, right = set(active["id"].tolist()), set(passive["id"].tolist())
    assert (len(left & right), len(left - right), len(right - left)) == (common, alone, alone)


@pytest.mark.parametrize("name", ["breast", "diabetes", "randhie", "meps"])
def test_bundled_settings_prepare_their_tables(name: str) -> None:
    data = packaged(name)
    kind = FAMILIES[data.card.loss.name].label_kind
    active = prepare(data.active, data.settings(data.active, kind), role="active")
    for part in deal(data.passive, 3):
        passive = prepare(part, data.settings(part, kind), role="passive")
        assert passive.rows == data.card.rows
    assert active.y is not None
    assert active.conditional_on_preprocessing
    high = data.card.loss.label_high
    if data.card.task == "positive" and high is not None:
        assert np.mean(active.y <= high) > 0.99


def test_real_losses_get_a_centred_label() -> None:
    data = load_dataset("diabetes")
    y = prepare(data.active, data.settings(data.active, "real"), role="active").y
    assert y is not None
    assert abs(float(y.mean())) < 0.1
    assert float(y.std()) == pytest.approx(1.0, abs=0.1)


def test_a_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / "adult_active.csv").write_text("id,y,age\n1,0,30\n2,1,40\n")
    (tmp_path / "adult_passive.csv").write_text("id,sex\n1,Male\n2,Female\n")
    data = load_dataset("adult", folder=tmp_path)
    assert (data.active.rows, data.passive.names) == (2, ("id", "sex"))
    passive = prepare(data.passive, data.settings(data.passive, "binary"), role="passive")
    assert passive.column_names == ("sex=Female", "sex=Male")
    places = {row["name"]: row["place"] for row in describe(tmp_path)}
    assert places["adult"] == "folder"
    assert (places["breast"], places["credit"]) == ("package", "download")


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(SettingsError, match=r"no data set 'iris'.*breast, credit"):
        load_dataset("iris")


def test_deal_gives_each_column_to_one_party() -> None:
    table = Table.of({"id": [1, 2], **{f"c{i}": [0, 1] for i in range(5)}})
    parts = deal(table, 2)
    assert [part.names for part in parts] == [("id", "c0", "c2", "c4"), ("id", "c1", "c3")]
    assert [part.names for part in deal(table, 5)] == [("id", f"c{i}") for i in range(5)]
    for parts_wanted in (0, 6):
        with pytest.raises(SettingsError, match="5 columns cannot be split"):
            deal(table, parts_wanted)


def test_held_out_rows_depend_on_id_and_seed_only() -> None:
    ids = np.arange(10_000)
    mask = held_out(ids, seed=1)
    assert abs(mask.mean() - 0.2) < 0.015
    assert np.array_equal(mask[::-1], held_out(ids[::-1], seed=1))
    assert np.array_equal(mask, held_out(Table.of({"i": [str(i) for i in ids]})["i"], seed=1))
    assert not np.array_equal(mask, held_out(ids, seed=2))
    for bad in (0.0, 1.0):
        with pytest.raises(SettingsError):
            held_out(ids, seed=1, fraction=bad)


ADULT = b"""\
39, Private, 77516, Bachelors, 13, Unmarried, Sales, Own-child, White, Male, 21, 0, 40, Peru, <=50K
52, ?, 209642, HS-grad, 9, Divorced, ?, Husband, White, Male, 0, 0, 45, United-States, >50K

"""
CREDIT_NAMES = (
    ["ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"]
    + [f"PAY_{i}" for i in (0, 2, 3, 4, 5, 6)]
    + [f"{kind}_AMT{i}" for kind in ("BILL", "PAY") for i in range(1, 7)]
    + ["default.payment.next.month"]
)
CREDIT = "\r\n".join([",".join(f'"{n}"' for n in CREDIT_NAMES), ",".join(["1"] * 25), ""]).encode()
GUEST = b"id,doctorco,hscore,chcond1,chcond2\n1,1,1,0,0\n2,0,3,1,0\n"
HOST = b"id,sex,age\n1,1,0.19\n2,0,0.4\n"
FILES = {"/adult": ADULT, "/credit": CREDIT, "/guest": GUEST, "/host": HOST, "/junk": b"<html>"}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = FILES.get(self.path)
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


CUTS = {
    "adult": (("/adult",), cut_adult, (8, 9), ["0", "1"]),
    "credit": (("/credit",), cut_credit, (15, 11), ["1"]),
    "dvisits": (("/guest", "/host"), cut_dvisits, (5, 3), ["1", "0"]),
}


@pytest.mark.parametrize("name", CUTS)
def test_download_is_cut_and_checked(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    paths, cut, widths, labels = CUTS[name]
    texts = [FILES[path].decode() for path in paths]
    right = content_digest(*cut([list(fetch.csv.reader(text.splitlines())) for text in texts]))
    source = PublicSource(tuple(site + path for path in paths), cut, right)
    monkeypatch.setitem(bundled.CARDS, name, replace(CARDS[name], public=source))
    data = load_dataset(name, cache=tmp_path / "cache")
    assert (len(data.active.names), len(data.passive.names)) == widths
    assert data.active["y"].tolist() == labels
    # The second time nothing is asked of the network.
    monkeypatch.setattr(fetch, "download", pytest.fail)
    again = load_dataset(name, cache=tmp_path / "cache")
    assert content_digest(again.active, again.passive) == right


@pytest.mark.parametrize("path", ["/adult", "/junk"])
def test_a_wrong_checksum_is_refused_and_not_kept(site: str, tmp_path: Path, path: str) -> None:
    source = PublicSource((site + path,), cut_adult, "0" * 64)
    with pytest.raises(NetworkError, match=r"not the known data set.*HDPVFL_DATA"):
        fetch.fetch_pair("adult", source, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["{site}/absent", "http://127.0.0.1:9/x", "http://nowhere.invalid/"]
)
def test_what_cannot_be_reached_names_the_remedy(site: str, path: str) -> None:
    with pytest.raises(NetworkError, match=r"cannot be reached.*set HDPVFL_DATA"):
        fetch.download(path.format(site=site))


def test_only_web_addresses_within_the_limit(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NetworkError, match="not a web address"):
        fetch.download("file:///etc/hostname")
    monkeypatch.setattr(fetch, "LIMIT_BYTES", 10)
    with pytest.raises(NetworkError, match="more than 10 bytes"):
        fetch.download(site + "/adult")


def test_contents_not_spelling_decide_the_checksum() -> None:
    one = Table.of({"id": ["1", "2"], "a": ["1.0", "x"]})
    other = Table.of({"id": [2, 1], "a": ["x ", "1"]})
    assert content_digest(one, one) == content_digest(other, other)
    assert content_digest(one, one) != content_digest(one, Table.of({"id": [1], "a": ["1"]}))
