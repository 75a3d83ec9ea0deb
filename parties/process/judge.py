"""Answers proposals of runs by the party's policy.

It owns which answer a proposal gets. The policy answers here, outside the role, because it may
change between two starts and a role's journal must not depend on it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.settings import load_settings
from parties.admission import policy_rule
from parties.process.ledger_book import LedgerBook
from parties.process.member_node import MemberNode
from parties.refusals import refusals
from parties.run_phases import Asked
from schemas.base import in_words
from schemas.commands import AnswerRun
from schemas.config import PartyServiceSettings
from schemas.ids import PartyId, RunId
from schemas.policy import PartyPolicy


class Judge:
    """The policy of one party's service."""

    def __init__(self, member: MemberNode, ledger: Ledger, log: Log, policy: PartyPolicy) -> None:
        self._member, self._ledger, self._log = member, ledger, log
        self.last_policy = policy

    def policy(self) -> PartyPolicy:
        """The policy as it is on disk now: proposals are judged by the newest version."""
        self.last_policy = newest_policy(self._member.settings)
        return self.last_policy

    def answer(self, name: RunId, run: Asked) -> AnswerRun | None:
        """The policy's answer to a proposal: no, or yes; None if the operator is asked."""
        must_ask = False
        try:
            policy = self.policy()
            if self._is_probing(policy, name, run.manifest.active_party):
                return None
            standing = LedgerBook(self._ledger, policy, name, b"").standing()
            rule = name_taken(self._member.settings, name)
            rule = rule or policy_rule(policy, self._member.settings.party, run.manifest, standing)
            rule = rule or self.dispute(run.manifest.parties)
            must_ask = policy.proposals == "ask"
        except OperatorError as wrong:  # the policy cannot be read, or its cap has changed
            rule = f"the policy of {self._member.settings.party} cannot be used"
            self._log.say("run_failed", run=name, reason=str(wrong), exit=wrong.exit_code)
        if rule is None and must_ask:
            self._log.say("run_asked", run=name, peer=run.manifest.active_party)
            return None
        reason = rule or "policy.proposals accepts what breaks no rule"
        self._log.say("run_answered", run=name, reason=reason)
        return AnswerRun(run=name, accepted=rule is None, reason=in_words(reason))

    def _is_probing(self, policy: PartyPolicy, name: RunId, active: PartyId) -> bool:
        """Whether an active party's proposals were refused too often to be told another reason."""
        count = refusals(self._member.state.runs.values(), active)
        if count < policy.refusals_max:
            return False
        reason = f"{count} proposals of {active} were refused: answer this one yourself"
        self._log.say("run_asked", run=name, peer=active, reason=reason)
        return True

    def dispute(self, parties: Collection[str]) -> str | None:
        """Why these members do not have the same keys for each other; None if they do."""
        for each in self._member.role.disputes(self._member.state):
            if {each.party, each.by} <= set(parties):
                return str(each)
        return None


def newest_policy(settings: PartyServiceSettings) -> PartyPolicy:
    """The policy as it is on disk now."""
    return load_settings(PartyPolicy, Path(settings.policy))


def name_taken(settings: PartyServiceSettings, name: RunId) -> str | None:
    """Why a run cannot have this name; its frames would go to the federation's own node."""
    if name != settings.federation:
        return None
    return "the run has the name of the federation: give the run another name"
