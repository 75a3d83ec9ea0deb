"""`hdpvfl completion bash | zsh`: shell completion generated from the argument parser.

It owns the shell script; the commands and options to complete come from argparse.
"""

from __future__ import annotations

import argparse

_SCRIPT = """\
_hdpvfl() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _hdpvfl hdpvfl
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script that a shell loads at start-up."""
    cases = [
        f'    {name}) words="{" ".join(_words(command))}" ;;'
        for name, command in sorted(commands_of(parser).items())
    ]
    text = _SCRIPT.format(commands=" ".join(sorted(commands_of(parser))), cases="\n".join(cases))
    return _ZSH + text if shell == "zsh" else text


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command and its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _words(command: argparse.ArgumentParser) -> list[str]:
    """Options of a parser and the choices of its positional arguments."""
    words: list[str] = []
    for action in command._actions:
        words += action.option_strings or [str(each) for each in action.choices or ()]
    return words
