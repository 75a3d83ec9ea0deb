"""Cases of tampered evidence, each with the check that notices it; both verifiers must agree.

Every check has at least one case that no other check notices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hdpvfl_mq.audit.evidence import Evidence
from tests.unit.audit import cheats, echoed, forged, mispriced, scored


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Evidence]
    number: int  # of the check that must notice
    alone: bool = True  # and no other check does


CASES = (
    Case("renumbered", forged.renumbered, 1),
    Case("unreadable", forged.unreadable, 1),
    Case("an effect of no run", forged.met_somebody, 1),
    Case("altered end", forged.altered_end, 2),
    Case("unlinked", forged.unlinked, 2),
    Case("unsigned", forged.unsigned, 3),
    Case("swapped keys", forged.swapped_keys, 3),
    Case("leaping epoch", forged.leaping_epoch, 3),
    Case("older process", forged.older_process, 3),
    Case("rewritten alone", forged.rewritten_alone, 4, alone=False),
    Case("rewritten answer", forged.rewritten_answer, 4),
    Case("truncated", forged.truncated, 4, alone=False),
    Case("forked", forged.forked, 4, alone=False),
    Case("two endings", forged.two_endings, 5),
    Case("unroutable", cheats.unroutable, 6),
    Case("wrong body", forged.wrong_body, 6),
    Case("unknown outcome", forged.unknown_outcome, 6, alone=False),
    Case("other plan", cheats.other_plan, 7),
    Case("split orders", echoed.split_orders, 7),
    Case("false echo of orders", echoed.false_echo, 7),
    Case("false report of residuals", echoed.false_report, 7),
    Case("same rows again", cheats.same_rows_again, 8),
    Case("small sigma", cheats.small_sigma, 9),
    Case("one small sigma", cheats.one_small_sigma, 9),
    Case("cheap release", cheats.cheap_release, 10),
    Case("cheaper by a unit", mispriced.cheaper_by_a_unit, 10),
    Case("dearer residual, shown by one", mispriced.dearer_residual, 10),
    Case("cheap share, shown alone", mispriced.only_passive_shown, 10),
    Case("paid a round later", mispriced.paid_a_round_later, 10),
    Case("cheap labels", mispriced.cheap_labels, 10),
    Case("cheap bounded labels", mispriced.cheap_bounded_labels, 10),
    Case("cheap statistics", mispriced.cheap_statistics, 10),
    Case("other mechanism", mispriced.other_mechanism, 9),
    Case("larger reserve", mispriced.larger_reserve, 12),
    Case("ledger forgets", cheats.ledger_forgets, 10),
    Case("ledger discount", cheats.ledger_discount, 10),
    Case("earlier entries dropped", cheats.earlier_run_dropped, 10, alone=False),
    Case("cap changed", cheats.cap_changed, 10, alone=False),
    Case("payload changed", cheats.payload_changed, 10, alone=False),
    Case("cut, shown alone", cheats.cut_alone, 10, alone=False),
    Case("cut before the plan, shown alone", cheats.cut_before_the_plan, 10, alone=False),
    Case("small noise in scores", cheats.small_noise_in_the_private_model, 9, alone=False),
    Case("completed without rounds", cheats.completed_without_rounds, 7, alone=False),
    Case("reused id", cheats.reused_id, 11),
    Case("small reserve", cheats.small_reserve, 12),
    Case("over the cap", cheats.over_the_cap, 12, alone=False),
    Case("slot taken twice", cheats.slot_taken_twice, 12, alone=False),
    Case("slot overfilled", cheats.slot_overfilled, 12, alone=False),
    Case("slots became mu2", cheats.slots_became_mu2, 12, alone=False),
    Case("other seed", cheats.other_seed, 13),
    Case("score with other noise", scored.score_with_small_noise, 9),
    Case("cheap score", scored.cheap_score, 9),
    Case("unsealed score", scored.unsealed_score, 9),
    Case("one score too many", scored.score_too_many, 7, alone=False),
    Case("score of another query", scored.score_of_another_query, 8),
    Case("others are charged", scored.others_charged, 10),
    Case("uncharged score", scored.uncharged_score, 10, alone=False),
)
