"""Runs in which orders or residuals differ, or their echoes lie: each with one party at fault."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.machine import Refused, Send
from schemas.ids import COORDINATOR
from schemas.messages import Pause, Resume, RoundPlan
from tests.evidence import CheatingFederation, evidence_of, replace_model, saying
from tests.federation import manifest, tables
from tests.samples import sample
from tests.unit.audit.honest import ROWS, SMALL

ALL = (COORDINATOR, "bank", "shop", "telco")


@cache
def _lived(liar: str, lie: str) -> CheatingFederation:
    brief = manifest(**{**SMALL, "epochs": 4}, rounds_ahead=2, deadline_s=20.0)
    cheats = {liar: {"says": LIES[lie]}}
    federation = CheatingFederation(brief, tables(ROWS), cheats=cheats)
    with suppress(HdpvflError):  # however it ended, the journals are what is looked at
        federation.simulate()
    return federation


def _split_orders(effect):
    if not (isinstance(effect, Send) and isinstance(effect.message, RoundPlan)):
        return (effect,)
    first, *others = effect.to
    fewer = replace_model(effect.message, last=effect.message.last - 1)
    return (Send((first,), fewer), Send(tuple(others), effect.message))


def _later_report(message):
    return replace_model(message, residuals_digest=bytes(32)) if message.residuals > 1 else message


def _refuses_orders(effect):
    """Says in its journal that it refused the order on which it acts."""
    share = isinstance(effect, Send) and effect.message.kind == "score_share"
    return (effect, Refused(reason="not allowed")) if share else (effect,)


def _early_residual(effect):
    agreed = isinstance(effect, Send) and effect.message.kind == "agreed"
    return (effect, Send(("shop",), sample("residual"))) if agreed else (effect,)


def _illegal_order(effect):
    """Sends all parties an order that they refuse, before the honest one."""
    if not (isinstance(effect, Send) and isinstance(effect.message, RoundPlan)):
        return (effect,)
    return (Send(effect.to, replace_model(effect.message, last=10**6)), effect)


def _resumes_early(effect):
    """Tells all parties to resume before the first plan; they refuse that."""
    if not (isinstance(effect, Send) and isinstance(effect.message, RoundPlan)):
        return (effect,)
    early = Send(effect.to, Resume(round=0, absent=()))
    return (early, effect) if effect.message.first == 0 else (effect,)


def _resumes_without(effect):
    """Tells all parties to go on without telco; they refuse that, as the manifest says to wait."""
    plan = effect.message if isinstance(effect, Send) else None
    if not isinstance(plan, RoundPlan) or plan.first != 0:
        return (effect,)
    return (effect, Send(effect.to, Resume(round=1, absent=("telco",))))


def _resumes(others):
    """Tells one party to resume, the others something else, and then asks all to report."""

    def says(effect):
        plan = effect.message if isinstance(effect, Send) else None
        if not isinstance(plan, RoundPlan) or plan.first != 0:
            return (effect,)
        told = dict.fromkeys(effect.to, others) | {"shop": Resume(round=4, absent=())}
        each = (Send((party,), message) for party, message in told.items())
        return (effect, *each, Send(effect.to, Pause(waiting_for=())))

    return says


LIES = {
    "none": lambda effect: (effect,),
    "early resume": _resumes_early,
    "resume without one": _resumes_without,
    "two resumes": _resumes(Resume(round=3, absent=())),
    "one resume": _resumes(Pause(waiting_for=())),
    "refused orders": _refuses_orders,
    "early residual": _early_residual,
    "illegal order": _illegal_order,
    "split orders": _split_orders,
    "false echo": saying("score_share", lambda m: replace_model(m, orders_digest=bytes(32))),
    "false report": saying("round_report", _later_report),
    "false reports": saying("round_report", lambda m: replace_model(m, residuals_digest=bytes(32))),
}


def shown(liar: str, lie: str, *parties: str) -> Evidence:
    return evidence_of(_lived(liar, lie), ledgers=False, only=parties)


def split_orders() -> Evidence:
    """The coordinator allows the active party fewer rounds; the honest show their journals."""
    return shown(COORDINATOR, "split orders", "bank", "shop", "telco")


def false_echo() -> Evidence:
    """A passive party echoes orders that nobody gave, and shows no journal."""
    return shown("shop", "false echo", COORDINATOR, "bank", "telco")


def false_report() -> Evidence:
    """A passive party reports residuals that it did not have."""
    return shown("shop", "false report", *ALL)
