"""What an operator may ask a party's service: one command at a time.

It owns the commands and their answers; the service does the work. Answers hold what this party's
operator may see, and go to the control socket only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hdpvfl_mq import __version__
from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger import Books
from hdpvfl_mq.runtime.control import Answer
from hdpvfl_mq.runtime.in_short import ENDED, KEYS_KNOWN, finite
from hdpvfl_mq.runtime.settings import check_settings
from parties.belonging import describe
from parties.pairing import Pairing
from parties.process.hosted import PartyRun
from parties.process.ledger_book import LedgerBook
from parties.process.service import PartyService
from parties.run_phases import Asked
from schemas.base import in_words
from schemas.commands import AnswerRun, ConfirmMember, ProposeRun, RemoveMember
from schemas.config import RunManifest
from schemas.ids import OLDEST_VERSION, RunId

_shown = lru_cache(maxsize=4096)(epsilon_shown)  # a page asks for all runs again and again
_LIVE = ("round", "rounds", "rows_common", "epsilon_spent", "waiting_for", "align", "loss")


class Commands:
    """The commands of one service."""

    def __init__(self, service: PartyService) -> None:
        self._service = service
        self._words: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "status": lambda asked: self.status(),
            "runs": self._runs,
            "requests": self._requests,
            "propose": self._propose,
            "answer": self._answer,
            "stop": self._stop,
            "end_session": self._end_session,
            "manifest": self._manifest,
            "confirm": self._confirm,
            "remove": self._remove,
            "replace_keys": self._replace_keys,
        }

    async def handle(self, asked: dict[str, Any]) -> Answer:
        """Answer one command."""
        if asked.get("command") == "score":
            return await self._session(asked).ask(asked)
        word = self._words.get(str(asked.get("command")))
        if word is None:
            raise OperatorError(f"{asked.get('command')!r} is not a command of a party's service")
        return word(asked)

    def status(self) -> Answer:
        """The service's status; the same for console, log, endpoints and commands."""
        service = self._service
        settings = service.settings
        return {
            "service": "party",
            "party": settings.party,
            "role": settings.role,
            "federation": settings.federation,
            "broker": settings.broker,
            "connected": service.link.is_connected,
            "trouble": service.broker.trouble or service.link.trouble,
            "keys": KEYS_KNOWN
            if service.broker.has_newest_keys
            else "new; the broker has not answered yet",
            "version": __version__,
            "members": {n: f.role for n, f in sorted(service.belonging.fellows.items())},
            "signed_by": {
                name: list(service.membership.signers(service.belonging, name))
                for name in sorted(service.belonging.fellows)
            },
            "disputes": [str(each) for each in service.membership.disputes(service.belonging)],
            "pairings": {n: _words(n, p) for n, p in service.belonging.pairings.items()},
            "runs": self._runs({})["runs"],
            "budget": self._budget(service.ledger.books),
            "traffic": {
                "sent_bytes": service.link.bytes_sent,
                "received_bytes": service.link.bytes_received,
                "resends": service.tally.resends,
                "refusals": service.tally.refusals,
            },
            "queues": {
                settings.federation: _queue(service.hub_link.waiting, service.node),
                **{n: _queue(run.waiting, run.node) for n, run in service.hosted.items()},
            },
        }

    def _budget(self, books: Books) -> Answer:
        policy = (
            self._service.judge.last_policy
        )  # while the policy is being edited, the last valid one
        known = policy.dataset in books.caps
        spent = books.epsilon_spent(policy.dataset) if known else 0.0
        free = policy.lifetime.epsilon
        if known:
            standing = LedgerBook(self._service.ledger, policy, "", b"").standing()
            free = epsilon_shown(Spent(mu2_units=standing.mu2_units_free), policy.lifetime.delta)
        return {
            "dataset": policy.dataset,
            "epsilon_spent": finite(spent),
            "epsilon_left": free,
            "epsilon_cap": policy.lifetime.epsilon,
            "delta": policy.lifetime.delta,
        }

    def _runs(self, asked: dict[str, Any]) -> Answer:
        return {"runs": {name: self._run(name) for name in self._service.belonging.runs}}

    def _run(self, name: RunId) -> Answer:
        service = self._service
        fields = describe(service.belonging.runs[name])
        hosted = service.hosted.get(name)
        if hosted is not None:
            live = hosted.fields()
            fields |= {key: live[key] for key in _LIVE if live.get(key) is not None}
            fields["phase"] = live["phase"]
        elif fields["phase"] in ENDED:
            fields["epsilon_spent"] = _spent(service.ledger.books, name)
        return fields

    def _requests(self, asked: dict[str, Any]) -> Answer:
        runs = self._service.belonging.runs
        waiting = {name: self._run(name) for name, run in runs.items() if isinstance(run, Asked)}
        return {"requests": waiting}

    def _propose(self, asked: dict[str, Any]) -> Answer:
        service = self._service
        manifest = check_settings(RunManifest, asked.get("manifest") or {}, "manifest")
        manifest = _before_opening(manifest)
        known = service.belonging.runs.get(manifest.run)
        if known is not None:
            if _before_opening(known.manifest) == manifest:
                return {"run": manifest.run}  # already proposed
            raise OperatorError(f"run {manifest.run} exists: choose another name")
        if manifest.run == service.settings.federation:
            raise OperatorError(f"{manifest.run} is the federation: give the run another name")
        if manifest.active_party != service.settings.party or service.settings.role != "active":
            raise OperatorError("only the active party, which has the label, proposes runs")
        strangers = [p for p in manifest.passive_parties if service.fellow(p) is None]
        if strangers:
            members = ", ".join(sorted(service.belonging.fellows)) or "nobody yet"
            raise OperatorError(
                f"{', '.join(strangers)}: no member this party knows; it knows {members}"
            )
        if (dispute := service.judge.dispute(manifest.parties)) is not None:
            raise IntegrityError(dispute)
        names = ("rows", "out", "session")
        wanted: dict[str, Any] = {name: asked[name] for name in names if name in asked}
        service.give(
            check_settings(
                ProposeRun,
                {"manifest": json.loads(manifest.model_dump_json()), **wanted},
                "options",
            )
        )
        return {"run": manifest.run}

    def _answer(self, asked: dict[str, Any]) -> Answer:
        name = str(asked.get("run"))
        known = self._service.belonging.runs.get(name)
        if not isinstance(known, Asked):
            raise OperatorError(f"run {name!r} waits for no answer; see 'hdpvfl requests'")
        accepted = asked.get("accepted") is True
        reason = in_words(str(asked.get("reason") or "the operator said so"))
        if not accepted and not reason:
            raise RefusedError("a refusal needs a reason")
        self._service.give(AnswerRun(run=name, accepted=accepted, reason=reason))
        return {"run": name, "accepted": accepted}

    def _session(self, asked: dict[str, Any]) -> PartyRun:
        hosted = self._service.hosted.get(str(asked.get("run")))
        if hosted is None or hosted.session is None:
            raise OperatorError(
                f"run {asked.get('run')} is not an open scoring session; "
                "'hdpvfl predict --keep' opens one"
            )
        return hosted

    def _end_session(self, asked: dict[str, Any]) -> Answer:
        self._session(asked).end_session()
        return {"run": asked["run"]}

    def _stop(self, asked: dict[str, Any]) -> Answer:
        name = str(asked.get("run"))
        self._service.withdraw(name)
        return {"run": name}

    def _manifest(self, asked: dict[str, Any]) -> Answer:
        known = self._service.belonging.runs.get(str(asked.get("run")))
        if known is None:
            raise OperatorError(f"there is no run {asked.get('run')}; see 'hdpvfl runs'")
        return {"manifest": json.loads(known.manifest.model_dump_json())}

    def _confirm(self, asked: dict[str, Any]) -> Answer:
        name = str(asked.get("party"))
        pairing = self._service.belonging.pairings.get(name)
        if pairing is None or not pairing.words:
            raise OperatorError(f"there are no words to compare with {name}; see 'hdpvfl status'")
        said = " ".join(str(asked.get("words") or "").split())
        if said != pairing.words:
            raise IntegrityError(
                f"these are not the words of {name}: if the other side reads out exactly these "
                f"words, someone is intercepting; type 'hdpvfl remove {name}' at both sides"
            )
        self._service.give(ConfirmMember(party=name))
        return {"party": name}

    def _remove(self, asked: dict[str, Any]) -> Answer:
        name = str(asked.get("party"))
        belonging = self._service.belonging
        if name not in belonging.fellows and name not in belonging.pairings:
            raise OperatorError(f"{name} is not known here; see 'hdpvfl status'")
        self._service.give(RemoveMember(party=name))
        return {"party": name}

    def _replace_keys(self, asked: dict[str, Any]) -> Answer:
        self._service.replace_keys(str(asked.get("folder")))
        return {"party": self._service.settings.party}


def _before_opening(manifest: RunManifest) -> RunManifest:
    """The manifest as proposed: the version of the protocol is agreed on when the run opens."""
    return RunManifest(**{**dict(manifest), "wire": OLDEST_VERSION})


def _queue(waiting: int, node: Node) -> Answer:
    return {"queue_messages": waiting, "unacknowledged": node.mailbox.unacknowledged_count}


def _words(name: str, pairing: Pairing) -> str:
    if not pairing.words:
        return f"waits until the service of {name} has answered"
    return (
        f"compare by telephone: {pairing.words}; "
        f"then 'hdpvfl confirm {name} {pairing.words}' at both sides"
    )


def _spent(books: Books, name: RunId) -> float | str:
    """Epsilon that the ledger has booked for a run, whatever the run was allowed to spend."""
    booked = [
        _shown(account.spent, books.caps[dataset].delta)
        for (dataset, run), account in books.runs.items()
        if run == name
    ]
    return finite(max(booked, default=0.0))
