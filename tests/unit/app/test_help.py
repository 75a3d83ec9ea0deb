"""Every command teaches: an example that parses, an option for machines, words for the shell."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from hdpvfl_mq.app.cli import _parser, main
from hdpvfl_mq.app.commands.completion import commands_of, script

COMMANDS = commands_of(_parser())
# The indented lines of each command's help, after the word "examples".
EXAMPLES = {
    name: [line.strip() for line in str(parser.epilog).split("\n\n")[0].splitlines()[1:]]
    for name, parser in COMMANDS.items()
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_examples_of_itself(name):
    assert EXAMPLES[name]
    assert all(line.split()[:2] == ["hdpvfl", name] for line in EXAMPLES[name])


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_taken_by_the_parser(line):
    words = shlex.split(line.split(" > ")[0])
    assert words[0] == "hdpvfl"
    assert _parser().parse_args(words[1:]).command


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_shows_the_examples_as_they_are_typed(name):
    text = COMMANDS[name].format_help()
    for line in EXAMPLES[name]:
        assert f"\n  {line}\n" in text
    assert "exit codes:" in text
    assert "--json" in text


@pytest.mark.parametrize("words", ["hdpvfl a", "hdpvfl ledger sh", "hdpvfl audit --mem"])
def test_bash_completes_words_and_options(words, tmp_path):
    typed = words.split()
    (tmp_path / "completion").write_text(script(_parser(), "bash"))
    quoted = " ".join(map(shlex.quote, typed))
    program = (
        f"source {tmp_path}/completion; COMP_WORDS=({quoted}); COMP_CWORD={len(typed) - 1}; "
        '_hdpvfl; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    expected = {"hdpvfl a": {"approve", "audit"}, "hdpvfl ledger sh": {"show"}}
    assert set(done.stdout.split()) == expected.get(words, {"--members"})


def test_the_command_prints_the_script(capsys):
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_explained(name):
    unexplained = [action.dest for action in COMMANDS[name]._actions if not action.help]
    assert unexplained == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_default_that_is_a_number_or_a_name_is_shown(name):
    for action in COMMANDS[name]._actions:
        if isinstance(action.default, int | float) and not isinstance(action.default, bool):
            assert "default" in action.help or action.default == 0, action.dest
