"""An independent verifier of a run's journals: standard library and PyNaCl, no code shared.

    python verify_journal.py runs/RUN [LEDGERS [MEMBERS.toml]]
    python verify_journal.py BUNDLE.zip [MEMBERS.toml]

The thirteen checks of `hdpvfl audit`, with sensitivities taken on trust (docs/audit.md). It prints
the formats of the journals, 1 or 2, and what each check found. Exit code 0: no alarm; 5: the
evidence contradicts itself (checks 1 to 5); 1: it is whole, the run is wrong.
"""

# ruff: noqa: E401, I001, BLE001 - one file, however long: an auditor carries it alone
import base64, hashlib, json, math, re, shutil, sqlite3, struct, sys, tempfile, tomllib, zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from nacl.signing import VerifyKey

ZERO = bytes(32)
# The two files about a bundle, the fields of its index, and the names of its other files.
BUNDLE, INDEX = ("evidence", "signatures"), {"format", "run", "made_at", "version"}
INDEX |= {"journals", "files"}
FILE = r"([A-Za-z0-9_-][A-Za-z0-9._-]{0,63}/)?[a-z]+\.(db|toml)"
# The effects a record of each format may have, and the methods a manifest may name.
EFFECTS = {
    "1": "sent armed reserved ledger finished refused",
    "2": "sent arm reserve book charge read_ledger remember_head check_ledger finish refused",
}
METHODS = {
    "1": "descent minimiser prediction",
    "2": "descent private_model prediction scoring",
}
# Why a run may end, and why a party may leave it: field and words.
ENDINGS = {
    "run_closed": ("outcome", "completed refused withdrawn deadline mismatch"),
    "withdraw": (
        "reason",
        "operator budget rows proof data manifest members toss order plan signature ledger "
        "orders residuals message missing deadline end version",
    ),
}
# Who may send what to whom: a active, p passive, c coordinator.
_ROUTES = """ack apc apc, part_request ap ap, part ap ap, hello ap c,
welcome c ap, run_offer c ap, run_accept ap c,
run_refuse ap c, align_start c ap, align_block ap ap, aligned ap c, agreement p a,
agreed a p, round_plan c ap, score_share p a, residual a p,
score_query a p, score_reply p a, round_report ap c, ending p a, ended a p, pause c ap,
waiting ap c, resume c ap, withdraw ap apc, run_closed c ap, ledger_head ap ap,
ledger_witness ap ap"""
# Messages that state their sender's ledger, and the field that does.
STATED = {"hello": "ledger", "ledger_head": "head", "agreement": "ledger", "agreed": "ledger"}
FINISH = ("finish", "finished")  # in format 2 and 1
ROUTES = {kind: ends for kind, *ends in (route.split() for route in _ROUTES.split(","))}
WIDTH = {"|i1": 1, "<i2": 2, "<i4": 4, "<i8": 8, "|u1": 1, "<f8": 8}
FORMS = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h"}
FORMS |= {0xD2: ">i", 0xD3: ">q", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H"}
FORMS |= {0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def unpack(data: bytes) -> Any:
    value, end = unpack_at(data, 0)
    if end != len(data):
        raise ValueError("a frame that is too short or too long")
    return value


def unpack_at(data: bytes, at: int) -> tuple[Any, int]:  # the value at a place, and its end
    code, at = data[at], at + 1
    if code < 0x80 or code >= 0xE0:
        return code - 256 * (code >= 0xE0), at
    if code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[code], at
    size = code & (31 if code >= 0xA0 else 15)  # of a short map, array or text
    if code >= 0xC0:
        size, at = struct.unpack_from(FORMS[code], data, at)[0], at + struct.calcsize(FORMS[code])
    if 0xCB <= code <= 0xD3:
        return size, at
    if 0xA0 <= code <= 0xC6 or 0xD9 <= code <= 0xDB:
        raw = data[at : at + size]
        return (raw if code in (0xC4, 0xC5, 0xC6) else raw.decode()), at + size
    items, pairs = [], code < 0x90 or code >= 0xDE
    for _ in range(size * (1 + pairs)):
        item, at = unpack_at(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if pairs else items), at


def tree(leaves: list[bytes]) -> bytes:  # RFC 9162, section 2.1.1
    if len(leaves) < 2:
        return sha(b"\0", leaves[0]) if leaves else sha()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha(b"\1", tree(leaves[:half]), tree(leaves[half:]))


def affordable(budget: Any, mu2_units: int, pure: Any = ()) -> bool:
    """Whether mu^2 in units of 2^-40, beside pure epsilons in such units, is (epsilon, delta)."""
    mu, losses = math.sqrt(max(mu2_units, 1) * 2.0**-40), {0: 1.0}
    for units in pure:
        after: dict[int, float] = defaultdict(float)
        for loss, chance in losses.items():
            for sign in (1, -1):  # loss of randomised response, the worst pure mechanism
                after[loss + sign * units] += chance / (1 + math.exp(-sign * units * 2.0**-40))
        grid = -(-2 * max(after) // 4096) or 1  # rounds losses up to a grid of limited size
        losses = defaultdict(float)
        for loss, chance in after.items():
            losses[-(-loss // grid) * grid if len(after) > 4096 else loss] += chance
    delta = 0.0
    for loss, chance in losses.items():
        epsilon = budget["epsilon"] - loss * 2.0**-40
        above, below = (math.erfc((epsilon / mu + s * mu / 2) / math.sqrt(2)) / 2 for s in (-1, 1))
        delta += chance * (above - math.exp(epsilon) * below if below else above)
    return bool(delta <= budget["delta"] * (1 + 1e-9))


def linked(place: bytes, body: bytes, key: bytes | None = None) -> bytes:
    """A ledger entry's digest: of the entry in format 1, of its commitment in format 2."""
    if key is None:
        return sha(place, body)
    seal = hashlib.blake2b(body, key=key, person=b"hdpvfl ledger 2", digest_size=32)
    return sha(b"hdpvfl-mq ledger 2\0", place, seal.digest())


def query(path: Path, statement: str) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:  # the evidence itself is never opened
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copyfile(file, Path(folder) / file.name)
        database = sqlite3.connect(Path(folder) / path.name)
        made = database.execute("SELECT type, upper(sql) FROM sqlite_master").fetchall()
        for kind, sql in made:  # a view or trigger would run what the author of the file wrote
            plain = kind == "table" and (sql is None or sql.startswith("CREATE TABLE"))
            if kind != "index" and not plain:
                raise ValueError(f"{path.name} computes what it should store")
        formulas = "FROM sqlite_master m, pragma_table_xinfo(m.name) WHERE m.type = 'table'"
        if database.execute(f"SELECT 1 {formulas} AND hidden != 0").fetchone():
            raise ValueError(f"{path.name} computes what it should store")
        return database.execute(statement).fetchall()


class Envelope:
    def __init__(self, party: str, index: int, sent: bool, frames: list[bytes]) -> None:
        self.where, self.party, self.index = f"{party}, record {index}", party, index
        self.sent, self.frames, self.header = sent, frames, unpack(frames[0])
        signed = [x for f in (frames[0], *frames[2:]) for x in (len(f).to_bytes(8, "big"), f)]
        self.digest = sha(b"hdpvfl-mq envelope 1\0", *signed)
        self.sender, self.kind = self.header["sender"], self.header["kind"]
        self.to, self.body = {d["party"]: d for d in self.header["to"]}, unpack(frames[2])
        self.round, self.release = self.body.get("round"), self.body.get("release", {})
        # A large array is five frames: the digests of its parts and their sizes stand for it.
        self.listed = unpack(frames[4])["bytes"] if len(frames) == 5 else 0
        self.noise = (self.release.get("noise_std"), self.release.get("exponent"))


class Run:
    def __init__(self, folder: Path, ledgers: Path | None, members: Path | None) -> None:
        self.name = folder.resolve().name
        self.journals: dict[str, list[Any]] = {}
        self.meta: dict[str, dict[str, str]] = {}
        self.ledgers: dict[str, list[Any]] = {}
        self.keys: dict[str, tuple[str, bytes]] = {}
        self.records: dict[str, list[Any]] = defaultdict(list)
        self.envelopes: list[Envelope] = []
        self.paths: dict[str, Path] = {}
        self.arrays: dict[bytes, bytes] = {}  # digest of a list of parts: sha256 of the array
        self.found: dict[int, str] = {}
        for file in [members] if members else sorted((folder / "settings").glob("*.toml")):
            table = tomllib.loads(file.read_text())
            for m in [*table.get("members", []), *table.get("peers", [])]:
                self.keys[m["party"]] = (m["role"], bytes.fromhex(m["verify_key"]))
        for path in sorted(folder.glob("*/journal.db")):
            party, ledger = path.parent.name, (ledgers or folder) / path.parent.name / "ledger.db"
            self.journals[party] = query(path, "SELECT idx, record, digest FROM records ORDER BY 1")
            self.meta[party] = dict(query(path, "SELECT key, value FROM meta"))
            if ledger.exists():
                self.ledgers[party] = query(ledger, "SELECT * FROM entry")
            for index, stored, _ in self.journals[party]:
                self.parse(party, index, stored)
            self.paths[party] = path
        own_last = sorted(self.envelopes, key=lambda e: e.sent)
        self.said = list({e.digest: e for e in own_last}.values())
        offers = self.of("run_offer")
        self.manifest = offers[0].body["manifest"] if offers else {}
        # The manifest is the last field of its message: its bytes are the rest of the body.
        self.manifest_digest = sha(*[o.frames[2].split(b"\xa8manifest", 1)[1] for o in offers[:1]])
        self.rows = max((e.body["rows"] for e in self.of("aligned")), default=0)
        self.format = min((meta.get("format", "") for meta in self.meta.values()), default="")
        # In format 1 a method is a name, and its constants are fields of the manifest.
        method = self.manifest.get("method", {})
        self.method = {**self.manifest, "kind": method} if self.format == "1" else method
        self.descends = self.method.get("kind") == "descent"
        batch = self.method["batch_rows"] if self.descends else self.rows
        r = -(-self.rows // max(1, min(batch, self.rows)))
        self.sizes = [(i + 1) * self.rows // r - i * self.rows // r for i in range(r)]
        self.rounds = r * self.method.get("epochs", 1)
        self.releases = self.of("score_share", "residual")
        self.sound = self.manifest.get("guarantee") == "sound"
        self.scores = self.method.get("kind") == "scoring"

    def parse(self, party: str, index: int, stored: bytes) -> None:
        try:
            record = unpack(stored)
            self.records[party].append(record)
            steps = [(False, record["input"]), *((True, effect) for effect in record["effects"])]
            both = [(sent, x["frames"]) for sent, x in steps if "frames" in x]
            self.envelopes += [Envelope(party, index, *one) for one in both]
        except Exception as broken:  # whatever cannot be read is a flaw
            self.check(1, False, f"{party}, record {index}", f"cannot be read: {broken}")

    def check(self, number: int, holds: Any, where: str, text: str) -> None:
        if not holds:
            self.found.setdefault(number, f"{where}: {text}")

    def of(self, *kinds: str) -> list[Envelope]:
        return [e for e in self.said if e.kind in kinds and e.body.get("kind") == e.kind]

    def noises(self, role: str) -> list[tuple[Any, Any]]:
        return [e.noise for e in self.releases if self.keys[e.sender][0] == role]

    def events(self, party: str) -> list[Any]:  # what left, and what stayed but is charged
        effects = [effect for record in self.records.get(party, []) for effect in record["effects"]]
        kept = [effect["release"]["event"] for effect in effects if effect["kind"] == "book"]
        return [e.release["event"] for e in self.releases if e.sender == party] + kept

    def paid(self, party: str) -> tuple[int, list[int]]:  # units of mu^2, pure epsilons
        events = self.events(party)
        pure = sorted(event.get("pure_units", 0) for event in events)
        return sum(event["mu2_units"] for event in events), [units for units in pure if units]

    def payload(self, e: Envelope) -> bytes:  # sha256 of the array
        return self.arrays.get(sha(*e.frames[3:]), ZERO) if e.listed else sha(*e.frames[3:])

    def parts_hold(self) -> None:  # 2: every part that a signed envelope lists is there
        for party in {e.party for e in self.envelopes if e.listed}:
            stored = dict(query(self.paths[party], "SELECT digest, part FROM parts"))
            refused = {
                record["index"]
                for record in self.records[party]
                if any(effect["kind"] == "refused" for effect in record["effects"])
            }
            for e in [e for e in self.envelopes if e.listed and e.party == party]:
                if not e.sent and e.index in refused:  # too large, or not as its list says
                    self.check(6, False, e.where, f"{e.sender} lists parts that were refused")
                    continue
                size, whole, total = unpack(e.frames[4])["part_bytes"], hashlib.sha256(), 0
                for at in range(0, len(e.frames[3]), 32):
                    digest = e.frames[3][at : at + 32]
                    part = stored.get(digest, b"")
                    good = sha(b"hdpvfl-mq part 1\0", part) == digest
                    self.check(2, good, e.where, f"part {at // 32} is missing or another one")
                    whole.update(part)
                    total += len(part)
                count = -(-e.listed // size)
                good = total == e.listed and len(e.frames[3]) == 32 * count
                self.check(2, good, e.where, "its parts are not the whole array")
                self.arrays[sha(*e.frames[3:])] = whole.digest()

    def journals_hold(self) -> None:  # 1, 2 and the epochs of 3
        spoken = {(e.party, e.index): e.header["epoch"] for e in self.envelopes if e.sent}
        self.check(1, self.journals, "the folder of the run", "holds no journal")
        for party, rows in self.journals.items():
            stamp = {"format": self.format, "run": self.name, "party": party}
            known, epoch, before = EFFECTS.get(self.format, "").split(), 0, ZERO
            self.check(1, rows and self.meta[party] == stamp, party, "empty, or of another run")
            records = {record["index"]: record for record in self.records[party]}
            for at, (index, stored, digest) in enumerate(rows):
                where, record = f"{party}, record {at}", records.get(at)
                self.check(1, at == index and record, where, "is missing")
                linked = sha(b"hdpvfl-mq record 1\0", stored) == digest
                if record:
                    kinds = {effect["kind"] for effect in record["effects"]}
                    self.check(1, kinds <= set(known), where, f"unknown effects: {kinds}")
                    linked &= record["previous"] == before
                    epoch += record["input"]["kind"] == "started"
                    own = {record["input"].get("epoch", epoch), spoken.get((party, at), epoch)}
                    self.check(3, own == {epoch}, where, "epochs do not rise by 1")
                self.check(2, linked, where, "digest or link does not hold")
                before = digest

    def envelopes_hold(self) -> None:  # 3 to 5
        sent: dict[Any, list[Any]] = defaultdict(list)
        received: dict[Any, list[Any]] = defaultdict(list)
        causes: dict[Any, bytes] = {}
        mine: dict[Any, bytes] = {}
        for e in self.envelopes:
            try:
                VerifyKey(self.keys[e.sender][1]).verify(e.digest, e.frames[1])
                good = e.sent == (e.sender == e.party) and e.header["run"] == self.name
            except Exception:
                good = False
            self.check(3, good, e.where, f"is not the signed word of {e.sender} in this run")
            ends = e.to if e.sent else [e.party]
            for end in ends if e.kind != "ack" else ():  # a bare acknowledgement has no number
                stream = sent[e.party, end] if e.sent else received[e.sender, end]
                stream.append(e.frames)
                self.check(5, e.to[end]["sequence"] == len(stream), e.where, "gap in a sequence")
            mine |= {(e.party, to, d["sequence"]): e.digest for to, d in e.to.items() if e.sent}
            if e.kind != "ack":
                causes.setdefault((e.party, e.index), ZERO if e.sent else e.digest)
            cause = not e.sent or e.header["parent"] == causes.get((e.party, e.index))
            self.check(5, cause, e.where, "answers another envelope")
        for (peer, party), stream in received.items():
            good = peer not in self.journals or stream == sent[peer, party][: len(stream)]
            self.check(5, good, party, f"did not receive what {peer} sent")
        for e in self.envelopes:
            size, stated = e.header["size"], (e.header["head"], e.header["root"])
            if e.sender in self.journals:
                shown = [digest for _, _, digest in self.journals[e.sender]]
                same = size <= len(shown) and size == (e.index if e.sent else size)
                same = same and stated == ([ZERO, *shown][size], tree(shown[:size]))
                self.check(4, same, e.where, f"{e.sender} signed another journal")
            for party, d in e.to.items():
                known = mine.get((party, e.sender, d["ack"])) if d["ack"] else ZERO
                seen = party not in self.journals or d["seen"] == known
                self.check(4, seen, e.where, f"{e.sender} saw what {party} does not show")

    def messages_legal(self) -> None:  # 6 and 13
        first: dict[str, Any] = {}
        for e in self.said:
            mine, *theirs = (self.keys[p][0][0] for p in (e.sender, *e.to))
            legal = mine in ROUTES[e.kind][0] and set(theirs) <= set(ROUTES[e.kind][1])
            legal &= len(e.to) == len(e.header["to"]) and e.body["kind"] == e.kind
            arrays = [x for part in (e.body, e.release) for x in part.values() if type(x) is dict]
            sizes = [math.prod(x["shape"]) * WIDTH[x["dtype"]] for x in arrays if "dtype" in x]
            legal &= sizes == [e.listed or len(frame) for frame in e.frames[3:4]]
            field, words = ENDINGS.get(e.kind, ("kind", e.kind))
            legal &= e.body.get(field) in words.split()
            self.check(6, legal, e.where, f"{e.sender} may not send such a {e.kind}")
            if e.kind == "hello":
                kept = tuple(v for k, v in e.body.items() if k not in ("epoch", "ledger"))
                self.check(13, first.setdefault(e.sender, kept) == kept, e.where, "another seed")
        self.check(13, len(set(first.values())) == len(first), "hello", "two share a seed")

    def noise_shown(self) -> tuple[list[Any], float]:
        """Noise and grid of every release that the plan counts, and C; empty if some are hidden."""
        outer = [self.noises(role)[:1] for role in ("active", "passive")]
        inner = [self.inner(kind)[:1] for kind in ("moments", "gram")]
        sides = [side for found in (outer if self.descends else outer + inner) for side in found]
        if self.descends and len(sides) == 2:
            share = self.method["passive"]["received_clip"]
            return sides, share * sides[0][0] if self.sound else math.inf
        plain = self.method["kind"] == "private_model" and self.method["noise"] == "gaussian"
        if not plain or len(sides) < 4:
            return [], 0.0
        clip = min(1.0 + self.method["received_clip"] * sides[0][0], 2.0**16)
        return sides, math.ceil(clip * 2.0**16) * 2.0**-16

    def inner(self, kind: str) -> list[Any]:  # noise of statistics that stay inside a passive party
        effects = [x for rows in self.records.values() for row in rows for x in row["effects"]]
        made = [x["release"] for x in effects if x["kind"] == "book"]
        named = [x for x in made if x["release_id"].split("/")[-2] == kind]
        return [(x["noise_std"], x["exponent"]) for x in named]

    def plan_followed(self) -> None:  # 7
        m, plans, planned = self.manifest, self.of("round_plan"), 0
        if not plans:
            return
        names = {m["active_party"]: "active", "coordinator": "coordinator"}
        names |= dict.fromkeys(m["passive_parties"], "passive")
        same = names == {p: role for p, (role, _) in self.keys.items()} and m["run"] == self.name
        same &= all(e.body["manifest"] == m for e in self.of("run_offer"))
        stated = {e.body["manifest_digest"] for e in self.of("run_accept")}
        self.check(7, same and stated <= {self.manifest_digest}, "manifest", "members or run")
        named = self.method["kind"] in METHODS[self.format].split()
        self.check(7, named, "manifest", "is of another method or format")
        digest = plans[0].body["plan_digest"]
        sides, clip = self.noise_shown()
        if sides:
            # The plan's digest covers the noise of all parties, so nobody can declare another.
            parts = [*((*side, self.rounds) for side in sides), (self.rows, clip)]
            domain = f"hdpvfl-mq plan {self.format}\0".encode()
            digest = sha(domain, self.manifest_digest, *(repr(part).encode() for part in parts))
        for e in plans:
            follows = (e.body["first"], e.body["plan_digest"]) == (planned, digest)
            self.check(7, follows, e.where, "is not the manifest's plan")
            planned = e.body["last"]
        for e in self.of("aligned"):
            plan = (e.body["rows"], e.body["rounds"], e.body["plan_digest"])
            self.check(7, plan == (self.rows, self.rounds, digest), e.where, "another plan")
        for e in self.releases:
            size = self.sizes[e.round % len(self.sizes)]
            held, shown = (self.method.get(x, 0) for x in ("held_out_rows", "disclosed_rows"))
            if e.kind == "residual" or shown:  # of rows that are learnt from; of agreed rows
                size -= held
            if e.kind == "score_share" and shown:
                size = min(shown, size) + held
            exact = (
                e.release["event"]["mechanism"] == "disclosed"
                or self.method["kind"] == "prediction"
            )
            if exact and not e.noise[0] and self.format != "1":
                size += 2  # the tag of a seal
            count = e.release["tensor"]["shape"] == [size]
            self.check(7, count and e.round < planned <= self.rounds, e.where, "not planned")
        if self.method["kind"] in ("prediction", "scoring") or self.method.get("early_stop"):
            return
        for party, records in self.records.items():  # a completed run had all its rounds
            ends = [x.get("outcome") for r in records for x in r["effects"] if x["kind"] in FINISH]
            heard = [e for e in self.envelopes if e.party == party and e.kind == "residual"]
            enough = len({e.round for e in heard}) == self.rounds or party == "coordinator"
            self.check(7, enough or "completed" not in ends, party, "completed without its rounds")

    def releases_paid(self) -> None:  # 8 to 11
        used: set[Any] = set()
        for e in self.releases:
            event, kind = e.release["event"], e.kind.removeprefix("score_")
            self.check(8, (e.sender, e.round) not in used, e.where, "rows leave a second time")
            used |= {(e.sender, e.round)}
            agreed = e.kind == "score_share" and self.method.get("disclosed_rows", 0) > 0
            free = {"exact": not self.sound, "disclosed": agreed}
            noised = free.get(event["mechanism"], e.noise[0] > 0)
            noised &= e.noise == self.noises(self.keys[e.sender][0])[0]
            self.check(9, noised, e.where, "another noise than before, or none")
            named, stated = f"{self.name}/{e.sender}/{kind}/{e.round}", e.release["release_id"]
            self.check(11, stated == named, e.where, f"is not named {named}")
            pays = (event["release_id"], event["round"]) == (stated, e.round)
            self.check(10, pays, e.where, "pays for another release")
        for party in self.keys if self.sound and not self.scores else ():
            self.check(9, affordable(self.manifest["budget"], *self.paid(party)), party, "cost")

    def scores_answered(self) -> None:  # 7 to 11, in a scoring session
        queries = {e.body["number"]: e for e in self.of("score_query")}
        once = len(queries) == len(self.of("score_query"))
        self.check(7, once and (self.scores or not queries), "score_query", "twice, or no session")
        for e in queries.values():
            array, raw = e.body["places"], e.frames[3]
            width = WIDTH[array["dtype"]]
            parts = [raw[at : at + width] for at in range(0, len(raw), width)]
            places = [int.from_bytes(part, "little", signed=True) for part in parts]
            rise = all(a < b for a, b in zip([-1, *places], [*places, self.rows], strict=True))
            self.check(7, rise, e.where, "leaves the places of the session")
        answered, noises = set[Any](), set[Any]()
        for e in self.of("score_reply"):
            number, event = e.body["number"], e.release["event"]
            query, array = queries.get(number), e.release["tensor"]
            refused = int.from_bytes(e.body["refused"], "big").bit_count()
            count = query.body["places"]["shape"][0] - refused if query else -1
            self.check(7, array["shape"] == [count + 2], e.where, "is not what its query asks for")
            self.check(8, (e.sender, number) not in answered, e.where, "answers a second time")
            answered |= {(e.sender, number)}
            noises |= {e.noise}
            if self.method.get("scores") == "noised":
                fair = e.noise[0] > 0 and event["mechanism"] == "lattice_gaussian"
                fair &= affordable(self.manifest["budget"], event["mu2_units"])
            else:
                fair = (event["mechanism"], event["disclosed_rows"]) == ("disclosed", count)
            sealed = array["dtype"] == "<i8" and len(noises) == 1
            self.check(9, fair and sealed, e.where, "unsealed, or not the noise and price")
            named = f"{self.name}/{e.sender}/score/{number}"
            stated = {e.release["release_id"], event["release_id"]}
            self.check(11, stated == {named}, e.where, f"is not named {named}")
        for party, records in self.records.items():  # charged before it is answered
            asked, sequence, granted = -1, 0, dict[int, bytes]()
            for record in records:
                given, where = record["input"], f"{party}, record {record['index']}"
                if given["kind"] == "charged":
                    grows = given["query"] == asked and given["head"]["sequence"] > sequence
                    self.check(10, grows, where, "an account that does not grow")
                    granted[asked], sequence = given["refused"], given["head"]["sequence"]
                for x in [x for x in record["effects"] if x["kind"] == "charge"]:
                    asked = x["query"]
                    same = asked in queries and queries[asked].frames[3] == x["places"]["data"]
                    self.check(10, same, where, "charges others than its query asks for")
            for e in [e for e in self.of("score_reply") if e.sender == party]:
                good = granted.get(e.body["number"]) == e.body["refused"]
                self.check(10, good, e.where, "answers uncharged")

    def caps_kept(self) -> None:  # 12
        reserves = ("reserved", "reserve")  # in format 1 and 2
        for party, records in self.records.items():
            free, room, mu2, pure = 0, list[int](), 0, list[int]()
            for record in records:
                standing = record["input"].get("standing", {})
                free = standing.get("mu2_units_free", free)
                room = standing.get("slots_free", [] if standing else room)
                for x in [x for x in record["effects"] if x["kind"] in reserves]:
                    mu2, pure = x["mu2_units"], sorted(x.get("pure_units", []))
                    fits = mu2 <= free and sum(pure) <= sum(room)
                    fits &= max([0, *pure]) <= max([0, *room])
                    self.check(12, fits, party, "reserves more than was free")
            paid = self.paid(party)
            done = any((e.sender, e.round + 1) == (party, self.rounds) for e in self.releases)
            within = paid[0] <= mu2 and not Counter(paid[1]) - Counter(pure)
            # If X'X is kept from an earlier run, its part of the reserve stays unspent.
            names = {event["release_id"].split("/")[-2] for event in self.events(party)}
            kept = "moments" in names and "gram" not in names
            whole = paid == (mu2, pure) or (kept and within)
            self.check(12, whole if done else within, party, "reserve")

    def ledgers_hold(self) -> None:  # 10 and 12
        for party, entries in self.ledgers.items():
            heads, payloads = [ZERO], dict[str, Any]()
            head, caps, held = ZERO, dict[str, Any](), dict[Any, tuple[int, Any]]()
            booked: dict[Any, dict[str, Any]] = defaultdict(dict)
            reserved: dict[Any, list[Any]] = defaultdict(list)
            for at, (number, digest, _, body, *key) in enumerate(sorted(entries), start=1):
                entry, head = json.loads(body), linked(head + at.to_bytes(8, "big"), body, *key)
                heads.append(head)
                good = (number, digest) == (at, head)
                self.check(10, good, f"ledger of {party}", f"link {at} is broken")
                if entry["kind"] in ("secret", "apart", "people"):
                    continue
                name, run = entry["dataset"], booked[entry.get("run")]
                if entry["kind"] == "cap":
                    caps[name] = (entry["cap"], entry.get("pure_slots", []))
                if entry["kind"] == "spend":
                    payloads[entry["event"]["release_id"]] = entry
                    run[entry["event"]["release_id"]] = (entry["event"], entry.get("slot"))
                spent = sum(event["mu2_units"] for event, _ in run.values())
                used = [(slot, e["pure_units"]) for e, slot in run.values() if e.get("pure_units")]
                if entry["kind"] in ("reserve", "close"):
                    shares = [(x["slot"], x["units"]) for x in entry.get("pure", [])]
                    mine = shares if entry["kind"] == "reserve" else used
                    held[name, entry["run"]] = (entry.get("mu2_units", spent), mine)
                    reserved[entry["run"]] = shares or reserved[entry["run"]]
                taken = Counter(used) - Counter(reserved[entry.get("run")])
                self.check(12, not taken, party, f"entry {at} takes a slot that is not reserved")
                cap, slots = caps[name]  # every slot counts in full, used or not
                parts = [part for (owner, _), part in held.items() if owner == name]
                good = affordable(cap, sum(mu2 for mu2, _ in parts), slots)
                filled: Counter[int] = Counter()
                for slot, units in [share for _, shares in parts for share in shares]:
                    filled[slot] += units
                good &= all(slot < len(slots) and n <= slots[slot] for slot, n in filled.items())
                self.check(12, good, party, f"entry {at} is above the cap")
            self.ledger_shown(party, heads, booked[self.name], payloads)

    def ledger_shown(
        self, party: str, heads: list[bytes], booked: dict[str, Any], payloads: dict[str, Any]
    ) -> None:  # 10: what left is booked, what is booked left, and the ledger has every signed head
        for event in self.events(party):
            good = booked.get(event["release_id"], [None])[0] == event
            self.check(10, good, f"ledger of {party}", f"books {event} otherwise")
        for e in [e for e in self.releases if e.sender == party]:
            entry = payloads.get(e.release["release_id"], {"keyed": True})
            stored = base64.urlsafe_b64decode(entry.get("digest", ""))
            good = entry.get("keyed") or stored == self.payload(e)
            self.check(10, good, e.where, "has another payload in the ledger")
        for e in [e for e in self.of(*STATED) if e.sender == party]:
            stated = e.body[STATED[e.kind]]
            good = heads[stated["sequence"] : stated["sequence"] + 1] == [stated["digest"]]
            self.check(10, good, e.where, "states a head that the ledger does not have")
        shown = {event["release_id"] for event in self.events(party)}
        unknown = set(booked) - shown
        self.check(10, not unknown, f"ledger of {party}", f"{unknown} in no message")


def report(
    folder: Path, ledgers: Path | None = None, members: Path | None = None
) -> tuple[list[str], dict[int, str]]:  # the formats seen, and what each check found
    try:
        run = Run(folder, ledgers, members)
    except Exception as broken:
        return [], {1: f"cannot be read: {broken}"}
    steps = {1: run.journals_hold, 2: run.parts_hold, 3: run.envelopes_hold, 6: run.messages_legal}
    steps |= {7: run.plan_followed, 8: run.releases_paid, 9: run.scores_answered}
    steps |= {12: run.caps_kept, 10: run.ledgers_hold}
    for number, step in steps.items():
        try:
            step()
        except Exception as broken:  # whatever breaks a check is a finding
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
                raise ValueError("other files than its index lists")
            held = packed.infolist()
            shown = [n.partition("/")[0] for n in names if n.endswith("/journal.db")]
            size = sum(f["bytes"] for f in index["files"])
            known = set(index) == INDEX and index["format"] == 1 and run.parent == Path(base)
            known &= len(held) == len(names) + 2 and sorted(shown) == sorted(index["journals"])
            known &= size <= 100 * sum(one.compress_size for one in held) + 2**24
            if not known or not all(re.fullmatch(FILE, name) for name in names):
                raise ValueError("an index of another format, or files that are no evidence")
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
        except Exception as broken:
            return [], {1: f"the bundle cannot be believed: {type(broken).__name__} {broken}"}
        return report(run, run, members or run / "members.toml")


def verify(*paths: Path) -> dict[int, str]:
    return report(*paths)[1]


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    show = report_bundle if Path(sys.argv[1]).is_file() else report
    seen, found = show(*map(Path, sys.argv[1:]))
    print(json.dumps({"formats": seen, "found": found}, indent=1))
    sys.exit(0 if not found else 5 if min(found) <= 5 else 1)
