"""Every command in a fenced block of README and docs is typed here, in the order of its page.

Placeholders (LINE, RUN, addresses, words) get what the commands before them printed. A command that
cannot run on one machine, or that another test runs, is listed with that test. It takes more than
a few seconds because it is the whole documented life of a federation.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from hdpvfl_mq.app.demo.prepare import free_port
from tests.contracts.test_docs_commands import PAGES, ROOT, blocks
from tests.integration.forked import Started
from tests.integration.processes import command, environment, hdpvfl, wait_for
from tests.integration.test_joining import Host

ROWS = 400
_START = re.compile(r"^(hdpvfl|make|python|curl|docker|systemctl|install|mv|useradd|sqlite3) ")
ON_THIS_MACHINE = ("README.md", "docs/audit.md", "docs/operations/backup.md")
IN_A_FEDERATION = ("docs/operations.md", "docs/operations/keys.md")
# Commands that are not typed here, by their first words: who runs them, or why nobody does.
ELSEWHERE = {
    "make run-parties": "integration/test_ctrl_c.py starts hdpvfl up, which the target calls",
    "make test": "this run",
    "make predict": "integration/test_predict.py",
    "curl": "integration/test_watching.py asks the same addresses",
    "docker": "contracts/test_deployment.py reads the files; no image is built",
    "systemctl": "contracts/test_deployment.py has systemd verify the units",
    "install": "contracts/test_deployment.py checks the unit that is installed",
    "mv": "a system's own",
    "useradd": "a system's own",
    "sqlite3": "a program of others",
}


def typed(*pages: str) -> list[str]:
    """The commands of these pages, each once, as they are printed."""
    found: list[str] = []
    for page in pages:
        for line in blocks((ROOT / page).read_text()):
            bare = re.split(r"\s{2,}", line.strip())[0]
            if _START.match(bare) and bare not in found:
                found.append(bare)
    return found


def is_elsewhere(text: str) -> bool:
    return any(text == start or text.startswith(start + " ") for start in ELSEWHERE)


def test_every_command_is_typed_here_or_listed():
    everywhere = typed(*(page.relative_to(ROOT).as_posix() for page in PAGES))
    here = {*typed(*ON_THIS_MACHINE), *typed(*IN_A_FEDERATION)}
    left = [text for text in everywhere if text not in here and not is_elsewhere(text)]
    assert left == [], left
    for test in ELSEWHERE.values():
        if test.startswith(("integration/", "contracts/")):
            assert (ROOT / "tests" / test.split(" ")[0]).exists()


def write_customers(path: Path, columns: int, *, label: tuple[object, ...] = ()) -> None:
    dice = np.random.default_rng(columns)
    X = dice.uniform(-1.0, 1.0, size=(ROWS, columns))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["customer_id", *(f"x{n}" for n in range(columns)), *["default"] * bool(label)]
        )
        for n in range(ROWS):
            answer = [label[n % len(label)]] if label else []
            writer.writerow([f"c{n}", *X[n].tolist(), *answer])


def test_commands_on_one_machine(tmp_path):
    write_customers(tmp_path / "bank.csv", 2, label=("yes", "no", "no"))
    write_customers(tmp_path / "shop.csv", 3)
    texts = [text for text in typed(*ON_THIS_MACHINE) if not is_elsewhere(text)]
    texts.sort(key=lambda text: not text.startswith("hdpvfl up"))
    assert len(texts) > 8
    for text in texts:
        words = shlex.split(re.sub(r" \[.*", "", text))
        if words[1] != "up":
            latest = (tmp_path / "runs" / "latest").resolve()
            party = sorted(f.parent.name for f in latest.glob("*/model.json"))[-1]
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "state" / party, copy, dirs_exist_ok=True)
            named = {"RUN": latest.name, "P": party, "runs/RUN": f"runs/{latest.name}"}
            words = [named.get(word, word) for word in words]
        if words[0] == "hdpvfl":
            done = hdpvfl(*words[1:], cwd=tmp_path)
        else:
            words = [sys.executable, str(ROOT / words[1]), *words[2:]]
            done = subprocess.run(
                words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, (text, done.stdout, done.stderr)


class Life:
    """Three folders in which the commands of docs/operations.md are typed, in their order."""

    def __init__(self, folder: Path) -> None:
        self.hosts = {name: Host(folder / name) for name in ("broker", "bank", "shop")}
        self.broker, self.bank, self.shop = self.hosts.values()
        write_customers(self.bank.folder / "customers.csv", 2, label=(1, 0, 0))
        write_customers(self.shop.folder / "customers.csv", 3)
        self.lines: dict[str, str] = {}
        self.run = ""
        self.proposer: Started | None = None

    def play(self, text: str) -> None:
        words = shlex.split(text)[1:]
        do = getattr(self, f"_{words[0]}", None)
        assert do is not None, f"{text}: say here where it is typed"
        do(words)

    def _init(self, words: list[str]) -> None:
        port = free_port()
        here = {"tcp://0.0.0.0:7700": f"tcp://127.0.0.1:{port}"}
        here["broker.example.org:7700"] = f"127.0.0.1:{port}"
        self.broker.type(*(here.get(word, word) for word in words))

    def _broker(self, words: list[str]) -> None:
        self.broker.serve(*words)

    def _invite(self, words: list[str]) -> None:
        self.lines[words[1]] = self.broker.type(*words)

    def _join(self, words: list[str]) -> None:
        for name, more in (("shop", ()), ("bank", ("--label", "default"))):
            said = [self.lines[name] if word == "LINE" else word for word in words]
            self.hosts[name].type(*said, *more)

    def _party(self, words: list[str]) -> None:
        for host in (self.bank, self.shop):
            host.serve(*words)

    def _confirm(self, words: list[str]) -> None:
        told = self.bank.words_for("shop")
        self.bank.type("confirm", words[1], *told)
        self.shop.type("confirm", "bank", *told)

    def _train(self, words: list[str]) -> None:
        """It follows its run to the end, so it is left running; what comes next ends it."""
        self._await()
        said = [self.run if word == "RUN" else word for word in words]
        before = self._known()
        out = self.bank.folder / "train.log"
        self.proposer = command(*said, out=out, cwd=self.bank.folder)
        self.run = wait_for(lambda: next(iter(self._known() - before), ""), f"{said}")
        if "--again" in words or "--manifest" in words:
            self._approve(["approve", "RUN"])

    def _known(self) -> set[str]:
        asked = json.loads(self.shop.type("requests", "--json"))["requests"]
        return set(asked) | set(json.loads(self.shop.type("runs", "--json"))["runs"])

    def _await(self, code: int = 0) -> None:
        if self.proposer is not None:
            log = self.bank.folder / "train.log"
            assert self.proposer.wait(120) == code, log.read_text()
            self.proposer = None

    def _requests(self, words: list[str]) -> None:
        assert self.run in self.shop.type(*words)

    def _approve(self, words: list[str]) -> None:
        self.shop.type(words[0], self.run)
        self._await()

    def _propose(self) -> None:
        self._train(["train", "--with", "shop", "--epsilon", "0.1"])

    def _refuse(self, words: list[str]) -> None:
        self._propose()
        self.shop.type(words[0], self.run, *words[2:])
        self._await(3)

    def _status(self, words: list[str]) -> None:
        for host in self.hosts.values():
            host.type(*words)

    _runs = _status

    def _stop(self, words: list[str]) -> None:
        self._propose()
        self.bank.type(words[0], self.run)
        self._await(3)

    def _plan(self, words: list[str]) -> None:
        here = {"shop,telco": "shop", "20000": str(ROWS)}
        self.bank.type(*(here.get(word, word) for word in words))

    def _check(self, words: list[str]) -> None:
        self.bank.type(*words)

    def _rotate(self, words: list[str]) -> None:
        assert "the broker has them" in self.shop.type(*words)


def test_commands_of_a_federation(tmp_path):
    life = Life(tmp_path)
    try:
        for text in typed(*IN_A_FEDERATION):
            if not is_elsewhere(text):
                life.play(text)
        life._await()
    finally:
        for host in life.hosts.values():
            host.end()
        if life.proposer is not None:
            life.proposer.kill()
