"""The settings of one run, made from a service's settings; a replay or restart reads them.

It owns the files `settings.toml` and `members.toml` in a run's folder. They are written once when
the run opens, so that a restart replays against the same settings and keys, whatever the service's
settings are by then, and an audit knows the public keys of all parties, including this one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import check_settings, dump_settings, load_settings
from parties.roster import Fellow
from parties.run_phases import Open
from schemas.bundle import BundleMembers
from schemas.config import PartyServiceSettings, PartySettings, Peer
from schemas.data import DataSettings
from schemas.ids import COORDINATOR, PartyId, RunId

_SAME = (
    "party",
    "broker",
    "broker_curve_key",
    "keys",
    "policy",
    "runs",
    "state",
    "ids",
    "engine",
)
PATIENCE_S = 30 * 86400.0  # a service keeps waiting; the run's own deadline ends it


def settings_of_run(
    service: PartyServiceSettings, run: Open, fellows: Mapping[PartyId, Fellow]
) -> PartySettings:
    """The run's settings: read from its folder, or made now and stored there."""
    folder = Path(service.runs) / run.manifest.run / service.party
    path = folder / "settings.toml"
    if not path.exists():
        if (folder / "journal.db").exists():
            raise RefusedError(
                f"{folder} exists from an earlier run with this name: choose another name"
            )
        made = _made(service, run, fellows)
        key = load_keys(Path(made.keys)).verify_hex
        own = Peer(party=made.party, role=made.role, verify_key=key)
        members = dump_settings(BundleMembers(members=(own, *made.peers)))
        write_private(folder / "members.toml", members, durable=True)
        write_private(path, dump_settings(made), durable=True)
    return load_settings(PartySettings, path)


def _made(
    service: PartyServiceSettings, run: Open, fellows: Mapping[PartyId, Fellow]
) -> PartySettings:
    manifest = run.manifest
    strangers = [p for p in manifest.parties if p != service.party and p not in fellows]
    if strangers:
        raise RefusedError(
            f"{', '.join(strangers)}: not confirmed here; compare words, then type "
            f"'hdpvfl confirm {strangers[0]}'"
        )
    if manifest.wire > service.speaks:
        raise RefusedError(
            f"the run uses version {manifest.wire} of the protocol, and this party speaks "
            f"{service.speaks}: raise 'speaks' in party.toml"
        )
    is_active = manifest.active_party == service.party
    plain = {name: getattr(service, name) for name in _SAME}
    peers = [
        Peer(
            party=party,
            role="active" if party == manifest.active_party else "passive",
            verify_key=fellows[party].verify_key.hex(),
        )
        for party in manifest.parties
        if party != service.party
    ]
    registrar = Peer(party=COORDINATOR, role="coordinator", verify_key=service.broker_verify_key)
    changes: dict[str, object] = {
        "run": manifest.run,
        "wire": manifest.wire,
        "wire_max": service.speaks,
        "role": "active" if is_active else "passive",
        "data": service.data,
        "patience_s": PATIENCE_S,
        "peers": (*peers, registrar),
    }
    if manifest.method.model_of is not None:
        changes |= _prediction(service, run, manifest.method.model_of)
        changes |= {"scores_out": run.out, "session": run.is_session}
    return PartySettings.model_validate({**plain, **changes})


def _prediction(service: PartyServiceSettings, run: Open, model_run: RunId) -> dict[str, object]:
    """The model of the training run, and the rows to score."""
    model = Path(service.runs) / model_run / service.party / "model.json"
    same = ("separator", "decimal", "encoding", "id_columns", "on_disk")
    rows = {
        **{name: getattr(service.data, name) for name in same},
        "file": run.rows or service.score_file or service.data.file,
    }
    return {"model": str(model), "data": check_settings(DataSettings, rows, "data")}
