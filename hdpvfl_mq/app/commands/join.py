"""`hdpvfl init | invite | join | confirm | remove`: create a federation, add and remove members.

It owns the files these commands write and what they print. Each machine makes its own secret keys,
and nobody has to copy a hexadecimal number.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from hdpvfl_mq.app.commands.services import ask, show
from hdpvfl_mq.app.demo.own_files import as_options
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import DataError, OperatorError, SettingsError
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.keys import load_or_make_keys
from hdpvfl_mq.runtime.knock import knock
from hdpvfl_mq.runtime.settings import check_settings, dump_settings, fields_of, load_settings
from hdpvfl_mq.wire.invitation import Invitation, read_line
from schemas.config import BrokerServiceSettings, FederationSettings, PartyServiceSettings
from schemas.data import DataSettings
from schemas.policy import PartyPolicy
from schemas.privacy import Budget

_PARTY_TEXT = """\
# This party's service, written by 'hdpvfl join'. Start it with: hdpvfl party
# Columns are taken as they are (centre 0, scale 1). State constants you know in [[data.rules]];
# "learn" fits them to the rows, which policy.toml must allow by learned_constants.
"""
_POLICY_TEXT = """\
# What this party allows; yours alone, never sent. Change it before the first run:
# lifetime is the cap of everything that will ever be released about these people.
# proposals = "accept" takes part in every run that breaks no rule; "ask" waits for
# 'hdpvfl approve RUN'.
"""


def init(options: argparse.Namespace) -> int:
    """Create a federation: write the broker's keys and settings."""
    path = Path("broker.toml")
    added = FederationSettings(name=options.name)
    if path.exists():
        old = load_settings(BrokerServiceSettings, path)
        if options.name in {each.name for each in old.federations}:
            raise SettingsError(f"{path} has a federation {options.name} already")
        federations = (*old.federations, added)
        made = BrokerServiceSettings.model_validate({**fields_of(old), "federations": federations})
    else:
        load_or_make_keys(Path("keys"))
        plain = {
            "bind": options.bind,
            "address": f"tcp://{options.address or options.bind.removeprefix('tcp://')}",
            "keys": "keys",
            "federations": [{"name": options.name}],
        }
        made = check_settings(BrokerServiceSettings, plain, "options")
    write_private(
        path, "# The broker's service. Start it with: hdpvfl broker\n" + dump_settings(made)
    )
    text = f"{path} written; now: hdpvfl broker, then: hdpvfl invite NAME for every member"
    return show(options, {"settings": str(path)}, lambda: say(text))


def invite(options: argparse.Namespace) -> int:
    """Print an invitation, one line, for one newcomer."""
    answer = ask(
        options,
        "invite",
        party=options.party,
        role=options.role,
        hours=options.hours,
        federation=options.federation,
    )
    return show(options, answer, lambda: print(answer["line"]))


def join(options: argparse.Namespace) -> int:
    """Make keys, ask the broker for admission, and write settings."""
    invitation = read_line(options.line)
    if time.time() > invitation.expires_s:
        raise OperatorError("the invitation has expired: ask for a new one")
    if Path("party.toml").exists():
        raise OperatorError("this folder already has a party.toml: join from an empty folder")
    data = _data(options, invitation)
    keys = load_or_make_keys(Path("keys"))
    verify_key = asyncio.run(knock(invitation, keys, proxy=options.proxy))
    plain = {
        "party": invitation.party,
        "role": invitation.role,
        "federation": invitation.federation,
        "broker": f"tcp://{invitation.address}",
        "broker_curve_key": invitation.curve_key.hex(),
        "broker_verify_key": verify_key.hex(),
        "keys": "keys",
        "policy": "policy.toml",
        "data": data,
        "ids": {"kind": options.id_kind, "columns": len(options.id)},
    }
    plain |= {"proxy": options.proxy} if options.proxy else {}
    policy = PartyPolicy(
        dataset=options.dataset or invitation.party,
        lifetime=Budget(epsilon=options.lifetime_epsilon, delta=options.lifetime_delta),
        run_epsilon_max=options.lifetime_epsilon,
    )
    write_private(Path("policy.toml"), _POLICY_TEXT + dump_settings(policy))
    settings = check_settings(PartyServiceSettings, plain, "options")
    write_private(Path("party.toml"), _PARTY_TEXT + dump_settings(settings))
    answer = {"party": invitation.party, "federation": invitation.federation}

    def lines() -> None:
        say(f"{invitation.party} has joined {invitation.federation}; look at policy.toml, then")
        say("  hdpvfl doctor    checks the data file and everything else the service needs")
        say("  hdpvfl party     runs this party's service")
        say("  hdpvfl status    shows three words for every other member: compare by telephone")

    return show(options, answer, lines)


def confirm(options: argparse.Namespace) -> int:
    """Confirm a member after the operators compared the words."""
    words = " ".join(options.words)
    answer = ask(options, "confirm", party=options.party, words=words)
    return show(options, answer, lambda: say(f"{options.party} is confirmed; its keys are kept"))


def remove(options: argparse.Namespace) -> int:
    """Remove a member: at the broker for good, at a party until words are compared again."""
    fields = {} if options.federation is None else {"federation": options.federation}
    answer = ask(options, "remove", party=options.party, **fields)
    return show(options, answer, lambda: say(f"{options.party} is removed"))


def _data(options: argparse.Namespace, invitation: Invitation) -> dict[str, object]:
    """The data settings, checked against the header of the data file."""
    if (options.data is None) != (options.query is not None):
        raise SettingsError("give --data, or --source and --query")
    if (invitation.role == "active") != (options.label is not None):
        raise SettingsError(
            f"--label: {invitation.party} is invited as {invitation.role}; "
            "only the active party names a label"
        )
    fields: dict[str, object] = {
        "file": options.data,
        "source": options.source,
        "query": options.query,
        "id_columns": options.id,
        "separator": options.separator,
        "decimal": options.decimal,
        "encoding": options.encoding,
    }
    fields |= {"label_column": options.label} if options.label else {}
    settings = check_settings(DataSettings, fields, "options")
    if settings.file is None:
        return fields  # the first run sends the query
    source = TableFile.of(settings)
    try:
        columns = source.names
    except (DataError, SettingsError) as wrong:
        raise type(wrong)(f"--data: {as_options(str(wrong))}") from None
    for column in (*options.id, *([options.label] if options.label else [])):
        if column not in columns:
            hint = as_options(source.hint)
            listed = ", ".join(columns)
            raise DataError(f"{options.data} has no column {column!r}; it has {listed}{hint}")
    return fields
