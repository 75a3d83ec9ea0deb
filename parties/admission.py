"""Whether a party takes part in a run that is offered: its own policy, rule by rule.

It owns the refusals and their words; it decides from the manifest, the policy and the ledger's
standing alone, so the answer tells nothing about any row. A coordinator cannot argue with it.
"""

from __future__ import annotations

import math

from hdpvfl_mq.methods.prediction.plan import prediction_of
from hdpvfl_mq.methods.private_model.plan import cost_of
from hdpvfl_mq.privacy.slots import placed
from hdpvfl_mq.psi import possible_methods
from hdpvfl_mq.wire.codec import model_digest
from parties.assets import Assets
from schemas.config import PartyPolicy, RunManifest
from schemas.ids import PartyId, PartyRole
from schemas.methods import Noise, Prediction, PrivateModel
from schemas.privacy import MU2_UNIT_BITS
from schemas.records import LedgerStanding

Rule = tuple[str, str]  # what the others are told, what only this party's console says


def policy_rule(
    policy: PartyPolicy, party: PartyId, manifest: RunManifest, standing: LedgerStanding
) -> str | None:
    """The first rule that a proposed run breaks, as far as it shows before any row is read."""
    strangers = set(manifest.parties) - {party} - set(policy.peers)
    if policy.peers and strangers:
        return f"policy.peers does not allow {', '.join(sorted(strangers))}"
    return (
        _too_few_rows(policy, manifest)
        or _wrong_alignment(policy, manifest)
        or _wrong_guarantee(policy, manifest)
        or _wrong_noise(policy, manifest)
        or _over_budget(policy, _role(party, manifest), manifest, standing)
    )


def broken_rule(own: Assets, manifest: RunManifest, standing: LedgerStanding) -> Rule | None:
    """The first rule of the policy that this run breaks, or None."""
    rule = (
        _wrong_part(own, manifest)
        or _wrong_model(own, manifest)
        or _too_few_rows(own.policy, manifest)
        or _wrong_alignment(own.policy, manifest)
        or _wrong_data(own, manifest)
        or _wrong_statistics(own, manifest)
    )
    is_silent = isinstance(manifest.method, Prediction) and own.role == "active"
    if not is_silent:  # who releases nothing has nothing to pay or to forbid
        rule = (
            rule
            or _wrong_guarantee(own.policy, manifest)
            or _wrong_noise(own.policy, manifest)
            or _over_budget(own.policy, own.role, manifest, standing)
        )
    return None if rule is None else (rule, "")


def _wrong_part(own: Assets, manifest: RunManifest) -> str | None:
    names = manifest.parties
    mine = manifest.active_party == own.party
    if own.approved is not None and model_digest(manifest) != own.approved:
        return "the offered run is not the one this party agreed to"
    if manifest.run != own.run:
        return "settings: the run has another name than the one this party was started for"
    if own.party not in names or mine != (own.role == "active"):
        return f"settings: this party was started as {own.role}, the manifest says otherwise"
    strangers = set(names) - {own.party} - set(own.policy.peers)
    if own.policy.peers and strangers:
        return f"policy.peers does not allow {', '.join(sorted(strangers))}"
    return None


def _wrong_model(own: Assets, manifest: RunManifest) -> str | None:
    """Whether a prediction is one with the model this party names, and priced for it."""
    model = own.model
    asked = manifest.method if isinstance(manifest.method, Prediction) else None
    if (model is None) != (asked is None):
        return "settings.model: name a model in a run that predicts, and in no other"
    if model is None or asked is None:
        return None
    trained, proved = model.manifest, prediction_of(model.manifest, model.rows)
    if asked.model_run != trained.run:
        return f"settings.model: it is of run {trained.run}, the manifest says {asked.model_run}"
    same = ("active_party", "passive_parties", "loss", "scale_rows", "intercept")
    if other := [name for name in same if getattr(manifest, name) != getattr(trained, name)]:
        return f"the manifest's {', '.join(other)} is not that of the run the model is of"
    if own.policy.dataset != model.dataset:
        return "policy.dataset is not the one this party's model was learnt from"
    is_priced = asked.weight_norm >= proved.weight_norm and asked.distance >= proved.distance
    small = "the manifest's method.weight_norm or .distance is smaller than the run proved"
    return None if is_priced else small


def _wrong_guarantee(policy: PartyPolicy, manifest: RunManifest) -> str | None:
    if isinstance(manifest.method, Prediction) and manifest.guarantee == "none":
        if not policy.exact_scoring:
            return "policy.exact_scoring is off: set it to let un-noised scores leave"
    elif manifest.guarantee not in policy.guarantees:
        return (
            f"policy.guarantees allows {', '.join(policy.guarantees)}, "
            f"not {manifest.guarantee}: name it there to allow it"
        )
    return None


def _too_few_rows(policy: PartyPolicy, manifest: RunManifest) -> str | None:
    if manifest.alignment.rows_min < policy.rows_min:
        return (
            f"policy.rows_min is {policy.rows_min}, the manifest's alignment.rows_min "
            f"{manifest.alignment.rows_min}: raise the latter"
        )
    return None


def _wrong_alignment(policy: PartyPolicy, manifest: RunManifest) -> str | None:
    allowed, method = policy.alignment_methods, manifest.alignment.method
    if set(possible_methods(method)) <= set(allowed):
        return None
    return (
        f"policy.alignment_methods allows {', '.join(allowed)}, the manifest's alignment.method "
        f"is {method}: set it to {allowed[0]}"
    )


def _role(party: PartyId, manifest: RunManifest) -> PartyRole:
    return "active" if manifest.active_party == party else "passive"


def _noise(manifest: RunManifest) -> Noise:
    method = manifest.method
    return method.noise if isinstance(method, PrivateModel) else "gaussian"


def _wrong_noise(policy: PartyPolicy, manifest: RunManifest) -> str | None:
    """Whether the policy allows the manifest's choice of noise, by name."""
    noise = _noise(manifest)
    if noise in policy.noises:
        return None
    return (
        f"policy.noises allows {', '.join(policy.noises)}, not {noise}: name it there to allow it, "
        f"see docs/bounded-noise.md for what an attacker gains"
    )


def _over_budget(
    policy: PartyPolicy, role: PartyRole, manifest: RunManifest, standing: LedgerStanding
) -> str | None:
    budget = manifest.budget
    if budget is None:
        return None
    if budget.epsilon > policy.run_epsilon_max:
        return (
            f"policy.run_epsilon_max is {policy.run_epsilon_max:g}, the run wants epsilon "
            f"{budget.epsilon:g}: lower it"
        )
    if budget.delta > policy.lifetime.delta:
        return (
            f"policy.lifetime.delta is {policy.lifetime.delta:g}, the run wants delta "
            f"{budget.delta:g}: lower it"
        )
    if manifest.guarantee == "sound":
        mu, pure = cost_of(manifest, role)
        needed = math.floor(mu**2 * 2.0**MU2_UNIT_BITS * 0.999)
        if needed > standing.mu2_units_free or placed(pure, standing.slots_free) is None:
            return (
                f"policy.lifetime: the ledger of {policy.dataset} has not enough left for "
                f"epsilon {budget.epsilon:g}; see 'hdpvfl ledger show'"
            )
    return None


def _wrong_statistics(own: Assets, manifest: RunManifest) -> str | None:
    """Whether the private model asks for more than this party has room for or discloses."""
    method = manifest.method
    if not isinstance(method, PrivateModel) or own.role == "active":
        return None
    if own.data.X.shape[1] > method.columns_max:
        return (
            f"the manifest's method.columns_max is {method.columns_max}, this party has "
            f"{own.data.X.shape[1]} columns: raise it"
        )
    disclosed = method.disclosed_rows + (method.held_out_rows if method.disclosed_rows else 0)
    if disclosed > own.policy.disclosed_rows_max:
        return (
            f"policy.disclosed_rows_max is {own.policy.disclosed_rows_max}, the run wants exact "
            f"scores of {disclosed} rows: raise it to disclose so many, or ask for fewer"
        )
    return None


def _wrong_data(own: Assets, manifest: RunManifest) -> str | None:
    if own.data.conditional_on_preprocessing and not own.policy.learned_constants:
        return (
            "policy.learned_constants is off and this party's preprocessing constants were "
            "fitted on its rows: state them in the settings, or allow it by name"
        )
    if _noise(manifest) == "bounded" and own.data.weights is not None:
        return "bounded noise takes no private sample weights: leave the weight column out"
    for field in type(own.id_rules).model_fields:
        mine, theirs = getattr(own.id_rules, field), getattr(manifest.alignment.ids, field)
        if mine != theirs:
            return (
                f"ids.{field} is {mine} in this party's settings and {theirs} in the manifest: "
                "the parties must read ids alike"
            )
    return None
