"""Every command in README and docs is one the program takes, and a named test runs its like."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from hdpvfl_mq.app import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
# The test that runs a command; it must hold the command's word.
RUN_BY = {
    "approve": "integration/test_joining.py",
    "audit": "integration/test_look_back.py",
    "broker": "integration/test_joining.py",
    "check": "unit/app/test_command_check.py",
    "completion": "unit/app/test_help.py",
    "confirm": "integration/test_joining.py",
    "datasets": "contracts/test_docs_commands.py",
    "doctor": "integration/test_mistakes.py",
    "evidence": "integration/test_look_back.py",
    "ids": "unit/psi/test_psi_normal_forms.py",
    "init": "integration/test_joining.py",
    "invite": "integration/test_joining.py",
    "join": "integration/test_joining.py",
    "key-change": "unit/runtime/test_replaced_keys.py",
    "keys": "contracts/test_docs_commands.py",
    "ledger": "integration/test_joining.py",
    "logs": "integration/test_watching.py",
    "page": "integration/test_page.py",
    "party": "integration/test_joining.py",
    "plan": "unit/app/test_command_check.py",
    "predict": "integration/test_predict.py",
    "refuse": "integration/test_joining.py",
    "remove": "integration/test_joining.py",
    "replay": "integration/test_look_back.py",
    "report": "integration/test_look_back.py",
    "requests": "integration/test_joining.py",
    "rotate": "integration/test_rotation.py",
    "runs": "integration/test_joining.py",
    "score": "integration/test_scoring_services.py",
    "status": "integration/test_joining.py",
    "stop": "integration/test_joining.py",
    "train": "integration/test_joining.py",
    "up": "integration/test_ctrl_c.py",
}
# Programs of others; what of ours they name is checked where this says.
OTHERS = {
    "curl": "integration/test_watching.py asks the same addresses",
    "docker": "contracts/test_deployment.py reads the files; no image is built in tests",
    "install": "contracts/test_deployment.py checks the unit that is installed",
    "mv": "a system's own",
    "useradd": "a system's own",
    "systemctl": "contracts/test_deployment.py has systemd verify the units",
    "git": "a system's own",
    "pip": "a system's own",
    "uv": "a system's own",
    "uvx": "a system's own",
    "pipx": "a system's own",
    "apt-get": "a system's own",
}
_PROMPT = re.compile(r"^(?:[a-z]+)?\$\s+")
_PLACEHOLDER = {"FILE...": "FILE", "LINE": "hdpvfl1-x"}


def blocks(text: str) -> list[str]:
    """Lines of fenced blocks in which commands stand."""
    found = re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```", text, flags=re.S | re.M)
    return [line for block in found for line in block.splitlines()]


def commands(page: Path) -> list[str]:
    """Every command of a page, in blocks and in running text."""
    text = page.read_text()
    found = []
    for line in blocks(text):
        bare = re.split(r"\s{2,}", _PROMPT.sub("", line.strip()))[0]  # what it does comes after
        found += [part.strip() for part in bare.split("&&")]
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    found += re.findall(r"`((?:hdpvfl|make) [^`]+)`", text.replace("\n", " "))
    return [each for each in found if re.match(r"^(hdpvfl|make|python) ", each)]


FOUND = sorted(
    {(page.relative_to(ROOT).as_posix(), each) for page in PAGES for each in commands(page)}
)
OURS = [(page, each) for page, each in FOUND if each.startswith("hdpvfl ") and " | " not in each]


@cache
def parser() -> argparse.ArgumentParser:
    return cli._parser()


def parsed(text: str) -> argparse.Namespace | None:
    words = [_PLACEHOLDER.get(word, word) for word in shlex.split(text)[1:]]
    words = [word.strip("[]") if word.startswith("[") else word for word in words if word != "..."]
    try:
        return parser().parse_args(words)
    except SystemExit as ended:  # argparse leaves so, also after --help
        return argparse.Namespace() if ended.code == 0 else None


@cache
def _flat(page: str) -> str:
    return (ROOT / page).read_text().replace("\n", " ")


def subcommands() -> dict[str, argparse.ArgumentParser]:
    action = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


@pytest.mark.parametrize(("page", "text"), OURS)
def test_the_program_takes_a_command_of_the_docs(page, text, capsys):
    words = shlex.split(text)
    command = subcommands().get(words[1])
    assert command is not None or words[1].startswith("-"), text
    is_typed = f"`{text}`" not in _flat(page)  # running text may leave things out
    if command is not None and is_typed:
        assert parsed(text) is not None, (page, text, capsys.readouterr().err)
    options = {word.split("=")[0] for word in words[2:] if word.startswith("--")}
    assert command is None or options <= set(command._option_string_actions), (page, text)


def test_every_command_has_a_test_that_runs_it():
    assert set(RUN_BY) == set(subcommands())
    for word, name in RUN_BY.items():
        text = (ROOT / "tests" / name).read_text()
        assert f'"{word}"' in text, (word, name)


def test_make_targets_of_the_docs_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = {each.split()[1] for _, each in FOUND if each.startswith("make ")}
    assert {each for each in named if "=" not in each} <= targets


def test_modules_of_the_docs_exist():
    for _, text in FOUND:
        if text.startswith("python -m "):
            module = text.split()[2].replace(".", "/")
            assert (
                (ROOT / f"{module}.py").exists() or (ROOT / module).is_dir() or module == "pytest"
            ), text


def test_nothing_in_a_block_is_a_command_nobody_knows():
    known = {"hdpvfl", "make", "python", "sqlite3", *OTHERS}
    for page in sorted((ROOT / "docs" / "operations").glob("*.md")):
        for line in blocks(page.read_text()):
            if line.strip() and not line.startswith((" ", "#")):
                assert _PROMPT.sub("", line).split()[0] in known, (page.name, line)


def test_data_sets_are_listed(capsys):
    assert cli.main(["datasets", "--json"]) == 0
    assert "visits" in {row["name"] for row in json.loads(capsys.readouterr().out)}


def test_keys_are_made_once(tmp_path, capsys):
    assert cli.main(["keys", str(tmp_path / "keys")]) == 0
    assert cli.main(["keys", str(tmp_path / "keys")]) == 2
    assert "holds keys already" in capsys.readouterr().err
