"""The settings of one run, made from a service's: what a replay or a restart of it reads.

It owns the file `settings.toml` in a run's folder: written once when the run opens, so that a
restart folds against the same settings and keys, whatever the service's are by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.settings import check_settings, dump_settings, load_settings
from parties.membership import Fellow, KnownRun
from schemas.config import PartyServiceSettings, PartySettings, Peer
from schemas.data import DataSettings
from schemas.ids import COORDINATOR, PartyId
from schemas.methods import Prediction

_SAME = ("party", "broker", "broker_curve_key", "keys", "policy", "runs", "state", "ids")
PATIENCE_S = 30 * 86400.0  # a service waits; the run's own deadline ends it


def settings_of_run(
    service: PartyServiceSettings, run: KnownRun, fellows: Mapping[PartyId, Fellow]
) -> PartySettings:
    """The run's settings: from its folder, or made now and kept there."""
    folder = Path(service.runs) / run.manifest.run / service.party
    path = folder / "settings.toml"
    if not path.exists():
        if (folder / "journal.db").exists():
            raise RefusedError(
                f"{folder} is there from an earlier run of this name: give the run another name"
            )
        write_private(path, dump_settings(_made(service, run, fellows)), durable=True)
    return load_settings(PartySettings, path)


def _made(
    service: PartyServiceSettings, run: KnownRun, fellows: Mapping[PartyId, Fellow]
) -> PartySettings:
    manifest = run.manifest
    strangers = [p for p in manifest.parties if p != service.party and p not in fellows]
    if strangers:
        raise RefusedError(
            f"{', '.join(strangers)}: not confirmed here; compare words and say "
            f"'hdpvfl confirm {strangers[0]}'"
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
        "role": "active" if is_active else "passive",
        "data": service.data,
        "patience_s": PATIENCE_S,
        "peers": (*peers, registrar),
    }
    if isinstance(manifest.method, Prediction):
        changes |= _prediction(service, run, manifest.method)
    return PartySettings.model_validate({**plain, **changes})


def _prediction(
    service: PartyServiceSettings, run: KnownRun, method: Prediction
) -> dict[str, object]:
    """The model of the run that was trained, and the rows to score."""
    model = Path(service.runs) / method.model_run / service.party / "model.json"
    rows = {
        "file": run.rows or service.score_file or service.data.file,
        "id_columns": list(service.data.id_columns),
        "on_disk": service.data.on_disk,
    }
    return {"model": str(model), "data": check_settings(DataSettings, rows, "data")}
