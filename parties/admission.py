"""Whether a party takes part in a run that is offered: its policy, checked rule by rule.

It owns the refusals and their texts. It decides from the manifest, the policy and the ledger's
standing alone, so the answer reveals nothing about any row. A coordinator cannot overrule it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.methods import prediction_of
from hdpvfl_mq.methods.private_model.plan import cost_of
from hdpvfl_mq.privacy.slots import placed
from hdpvfl_mq.psi import possible_methods
from hdpvfl_mq.wire.codec import model_digest
from parties.assets import Assets, TrainedModel
from schemas.config import RunManifest
from schemas.ids import PartyId, PartyRole, RunId
from schemas.policy import PartyPolicy
from schemas.privacy import MU2_UNIT_BITS
from schemas.records import LedgerStanding

Rule = tuple[str, str]  # text for the other parties, text for this party's console only


def policy_rule(
    policy: PartyPolicy, party: PartyId, manifest: RunManifest, standing: LedgerStanding
) -> str | None:
    """The first rule that a proposed run breaks; only rules that need no row are checked."""
    return next(policy_rules(policy, party, manifest, standing), None)


def policy_rules(
    policy: PartyPolicy, party: PartyId, manifest: RunManifest, standing: LedgerStanding
) -> Iterator[str]:
    """Every rule that a run breaks; only rules that need no row are checked."""
    strangers = set(manifest.parties) - {party} - set(policy.peers)
    if policy.peers and strangers:
        yield f"policy.peers does not allow {', '.join(sorted(strangers))}"
    found = (
        _too_few_rows(policy, manifest),
        _wrong_alignment(policy, manifest),
        _wrong_guarantee(policy, manifest),
        _wrong_noise(policy, manifest),
        _wrong_scoring(policy, _role(party, manifest), manifest),
        _over_budget(policy, _role(party, manifest), manifest, standing),
    )
    yield from (rule for rule in found if rule is not None)


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
    is_silent = own.role == "active" and not manifest.method.active_releases
    if not is_silent:  # a party that releases nothing has nothing to pay or to forbid
        rule = (
            rule
            or _wrong_guarantee(own.policy, manifest)
            or _wrong_noise(own.policy, manifest)
            or _wrong_scoring(own.policy, own.role, manifest)
            or _over_budget(own.policy, own.role, manifest, standing)
        )
    return None if rule is None else (rule, "")


def _wrong_part(own: Assets, manifest: RunManifest) -> str | None:
    names = manifest.parties
    mine = manifest.active_party == own.party
    if own.approved is not None and model_digest(manifest) != own.approved:
        return "the offered run is not the one this party agreed to"
    if manifest.wire != own.wire:
        return (
            f"settings: this party was started with wire = {own.wire}, the manifest says "
            f"{manifest.wire}: make them equal"
        )
    if manifest.run != own.run:
        return "settings: the run's name is not the one this party was started for"
    if own.party not in names or mine != (own.role == "active"):
        return f"settings: this party was started as {own.role}, the manifest says otherwise"
    return _wrong_peers(own, manifest)


def _wrong_peers(own: Assets, manifest: RunManifest) -> str | None:
    others = set(manifest.parties) - {own.party}
    unknown = others - set(own.verify_keys)
    if unknown:  # nothing can be sent to them, or believed of them
        return f"settings: this party has no key of {', '.join(sorted(unknown))}"
    strangers = others - set(own.policy.peers)
    if own.policy.peers and strangers:
        return f"policy.peers does not allow {', '.join(sorted(strangers))}"
    return None


def _wrong_model(own: Assets, manifest: RunManifest) -> str | None:
    """Why a prediction does not fit the model this party names, or is not priced for it."""
    model = own.model
    model_run = manifest.method.model_of
    if (model is None) != (model_run is None):
        return "settings.model: name a model in a run that predicts, and in no other"
    if model is None or model_run is None:
        return None
    return _other_model(own, model, manifest, model_run) or _unpriced(own, model, manifest)


def _unpriced(own: Assets, model: TrainedModel, manifest: RunManifest) -> str | None:
    """Why the run's price does not cover this model's weights."""
    covers = manifest.method.covers
    if covers is None:
        if own.role == "active" or model.weights_private:
            return None
        return (
            f"the weights of {model.manifest.run} are not private: method prediction can score "
            "with them, booked as what that tells of every training row"
        )
    proved = prediction_of(model.manifest)
    weight_norm, distance = covers
    is_priced = weight_norm >= proved.weight_norm and distance >= proved.distance
    small = "the manifest's method.weight_norm or .distance is smaller than the run proved"
    return None if is_priced else small


def _other_model(
    own: Assets, model: TrainedModel, manifest: RunManifest, model_run: RunId
) -> str | None:
    """Why the run is not about the model that this party names."""
    trained = model.manifest
    if model_run != trained.run:
        return f"settings.model: it is of run {trained.run}, the manifest says {model_run}"
    same = ("active_party", "passive_parties", "loss", "scale_rows", "intercept")
    if other := [name for name in same if getattr(manifest, name) != getattr(trained, name)]:
        return f"the manifest's {', '.join(other)} is not that of the run the model is of"
    if own.policy.dataset != model.dataset:
        return "policy.dataset is not the one this party's model was learnt from"
    return None


def _wrong_scoring(policy: PartyPolicy, role: PartyRole, manifest: RunManifest) -> str | None:
    """Why the policy forbids these scores of private weights to leave."""
    asks = manifest.method.asks
    if asks.scores is None or role == "active":
        return None
    if policy.scoring == "none" or (policy.scoring, asks.scores) == ("noised", "disclosed"):
        return (
            f"policy.scoring is {policy.scoring}, the manifest's method.scores {asks.scores}: "
            "docs/scored-people.md says what a scored person gives away"
        )
    if asks.scores == "disclosed" and asks.coarsen < policy.coarsen:
        return (
            f"policy.coarsen is {policy.coarsen:g}, the manifest's method.coarsen "
            f"{asks.coarsen:g}: raise the latter"
        )
    return None


def _wrong_guarantee(policy: PartyPolicy, manifest: RunManifest) -> str | None:
    if manifest.guarantee == "none" and not manifest.method.trains:
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


def _wrong_noise(policy: PartyPolicy, manifest: RunManifest) -> str | None:
    """Why the policy does not allow the manifest's noise; policies allow noise by name."""
    noise = manifest.method.asks.noise
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
    # Noised scores of private weights are charged to the people who are scored.
    if manifest.guarantee == "sound" and manifest.method.payer == "rows":
        try:
            mu, pure = cost_of(manifest, role)
        except SettingsError as beyond:  # the manifest's numbers: no reason to stop
            return f"the privacy argument refuses these settings: {beyond}"
        needed = math.floor(mu**2 * 2.0**MU2_UNIT_BITS * 0.999)
        if needed > standing.mu2_units_free or placed(pure, standing.slots_free) is None:
            return (
                f"policy.lifetime: the ledger of {policy.dataset} does not have enough left for "
                f"epsilon {budget.epsilon:g}; see 'hdpvfl ledger show'"
            )
    return None


def _wrong_statistics(own: Assets, manifest: RunManifest) -> str | None:
    """Why the method asks for more disclosed rows than this party allows, or for fewer columns."""
    asks = manifest.method.asks
    if own.role == "active":
        return None
    if asks.columns_max is not None and own.data.X.shape[1] > asks.columns_max:
        return (
            f"the manifest's method.columns_max is {asks.columns_max}, this party has "
            f"{own.data.X.shape[1]} columns: raise it"
        )
    if asks.disclosed_rows > own.policy.disclosed_rows_max:
        return (
            f"policy.disclosed_rows_max is {own.policy.disclosed_rows_max}, the run wants exact "
            f"scores of {asks.disclosed_rows} rows: raise it to disclose so many, or ask for fewer"
        )
    return None


def _wrong_data(own: Assets, manifest: RunManifest) -> str | None:
    if own.data.conditional_on_preprocessing and not own.policy.learned_constants:
        return (
            "policy.learned_constants is off and this party's preprocessing constants were "
            "fitted on its rows: state them in the settings, or allow it by name"
        )
    if manifest.method.asks.noise == "bounded" and own.data.weights is not None:
        return "bounded noise takes no private sample weights: leave the weight column out"
    for field in type(own.id_rules).model_fields:
        mine, theirs = getattr(own.id_rules, field), getattr(manifest.alignment.ids, field)
        if mine != theirs:
            return (
                f"ids.{field} is {mine} in this party's settings and {theirs} in the manifest: "
                "the parties must read ids alike"
            )
    return None
