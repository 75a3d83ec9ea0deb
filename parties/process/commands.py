"""What an operator may ask a party's service, one word at a time.

It owns the words and their answers; the service does the work. Answers hold what this party's own
operator may see, and go to the control socket only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hdpvfl_mq import __version__
from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.privacy.ledger import Books
from hdpvfl_mq.runtime.settings import check_settings
from parties.membership import describe
from parties.pairing import Pairing
from schemas.base import in_words
from schemas.config import RunManifest
from schemas.federation import AnswerRun, ConfirmMember, ProposeRun, RemoveMember
from schemas.ids import RunId

if TYPE_CHECKING:
    from parties.process.service import PartyService

Answer = dict[str, Any]
_LIVE = ("round", "rounds", "rows_common", "epsilon_spent", "waiting_for", "align", "loss")


class Commands:
    """The words of one service."""

    def __init__(self, service: PartyService) -> None:
        self._service = service
        self._words: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "status": self._status,
            "runs": self._runs,
            "requests": self._requests,
            "propose": self._propose,
            "answer": self._answer,
            "stop": self._stop,
            "manifest": self._manifest,
            "confirm": self._confirm,
            "remove": self._remove,
        }

    async def handle(self, asked: dict[str, Any]) -> Answer:
        """The answer to one question."""
        word = self._words.get(str(asked.get("command")))
        if word is None:
            raise OperatorError(f"{asked.get('command')!r} is no command of a party's service")
        return word(asked)

    def _status(self, asked: dict[str, Any]) -> Answer:
        service = self._service
        settings = service.settings
        return {
            "service": "party",
            "party": settings.party,
            "role": settings.role,
            "federation": settings.federation,
            "broker": settings.broker,
            "connected": service.link.is_connected,
            "trouble": service.trouble or service.link.trouble,
            "version": __version__,
            "members": {n: f.role for n, f in sorted(service.belonging.fellows.items())},
            "pairings": {n: _words(n, p) for n, p in service.belonging.pairings.items()},
            "runs": self._runs(asked)["runs"],
            "budget": self._budget(service.ledger.books),
        }

    def _budget(self, books: Books) -> Answer:
        policy = self._service.policy()
        known = policy.dataset in books.caps
        spent = books.epsilon_spent(policy.dataset) if known else 0.0
        return {
            "dataset": policy.dataset,
            "epsilon_spent": spent if spent < float("inf") else "infinite",
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
        return fields

    def _requests(self, asked: dict[str, Any]) -> Answer:
        runs = self._service.belonging.runs
        waiting = {name: self._run(name) for name, run in runs.items() if run.phase == "asked"}
        return {"requests": waiting}

    def _propose(self, asked: dict[str, Any]) -> Answer:
        service = self._service
        manifest = check_settings(RunManifest, asked.get("manifest") or {}, "manifest")
        known = service.belonging.runs.get(manifest.run)
        if known is not None:
            if known.manifest == manifest:
                return {"run": manifest.run}  # asked for already
            raise OperatorError(f"run {manifest.run} exists: choose another name")
        if manifest.active_party != service.settings.party or service.settings.role != "active":
            raise OperatorError("only the active party, which has the label, proposes runs")
        strangers = [p for p in manifest.passive_parties if service.fellow(p) is None]
        if strangers:
            members = ", ".join(sorted(service.belonging.fellows)) or "nobody yet"
            raise OperatorError(
                f"{', '.join(strangers)}: no member this party knows; it knows {members}"
            )
        service.give(ProposeRun(manifest=manifest, rows=asked.get("rows")))
        return {"run": manifest.run}

    def _answer(self, asked: dict[str, Any]) -> Answer:
        name = str(asked.get("run"))
        known = self._service.belonging.runs.get(name)
        if known is None or known.phase != "asked":
            raise OperatorError(f"run {name!r} waits for no answer; see 'hdpvfl requests'")
        accepted = asked.get("accepted") is True
        reason = in_words(str(asked.get("reason") or "the operator said so"))
        if not accepted and not reason:
            raise RefusedError("a refusal needs a reason")
        self._service.give(AnswerRun(run=name, accepted=accepted, reason=reason))
        return {"run": name, "accepted": accepted}

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
                f"these are not the words of {name}: if the other side reads them like this, "
                f"somebody sits in between; say 'hdpvfl remove {name}' at both sides"
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


def _words(name: str, pairing: Pairing) -> str:
    if not pairing.words:
        return f"waits until the service of {name} has answered"
    return (
        f"compare by telephone: {pairing.words}; "
        f"then 'hdpvfl confirm {name} {pairing.words}' at both sides"
    )
