"""What a run leaves a party: its model or, after a prediction, a score for every common row.

It owns model.json and predictions.csv, both readable by their owner only; it knows no message. A
model stores the constants its rows were prepared with, so that later rows are prepared the same.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from pydantic import ValidationError

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.data.preprocess import output_names
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods import prediction_of
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.methods.score_regression import ScoreRegression
from hdpvfl_mq.runtime.files import write_private
from parties.assets import Assets, TrainedModel
from parties.common_rows import is_scaled, rows_of
from parties.phases import Closed, RoundState
from parties.rounds.prediction import PredictionActive
from parties.rounds.private_model import PrivatePassive
from parties.rounds.shares_fit import PrivateActive
from schemas.config import PartySettings, RunManifest
from schemas.data import DataSettings

MODEL_FORMAT = 4
# Settings that describe the file; all others come from the model.
_OF_THE_FILE = (
    *("file", "query", "source", "separator", "decimal", "encoding"),
    *("id_columns", "empty_ids", "on_disk"),
)
_NO_LABEL = ("label_column", "label_classes", "label_positive", "label_centre", "label_scale")


def write_model(path: Path, own: Assets, state: Closed) -> None:
    """Write this party's model, readable by its owner only, with a digest that replay checks."""
    model = model_of(own, state)
    write_private(path, json.dumps({**model, "digest": model_digest(own, model)}, indent=1))


def model_digest(own: Assets, model: dict[str, Any]) -> str:
    """Digest of a model, keyed by the run's secret so that nobody can test guesses of weights."""
    fields = {name: value for name, value in model.items() if name != "digest"}
    text = json.dumps(fields, sort_keys=True).encode()
    return hashlib.blake2b(text, key=own.derived(b"model file"), digest_size=32).hexdigest()


def model_differs(path: Path, own: Assets, state: Closed) -> str:
    """How a model file differs from what its run has trained; empty if it does not."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return f"{path} cannot be read"
    expected = json.loads(json.dumps(model_of(own, state)))
    names = [n for n in {**expected, **stored} if stored.get(n) != expected.get(n)]
    names = sorted(set(names) - {"digest"})
    if names:
        return f"{path} differs from what the journal gives: {', '.join(names)}"
    return "" if stored.get("digest") == model_digest(own, expected) else f"{path}: wrong digest"


def model_of(own: Assets, state: Closed) -> dict[str, Any]:
    """This party's weights and how its rows were prepared; never sent."""
    trained = state.trained
    assert trained is not None  # a completed run has trained
    rounds, plan = trained.rounds, trained.setup.plan
    regressions = rounds.score_regressions if isinstance(rounds, PrivateActive) else {}
    return {
        "format": MODEL_FORMAT,
        "run": own.run,
        "party": own.party,
        "role": own.role,
        "dataset": own.policy.dataset,
        "rows": plan.rows,
        "columns": list(own.data.column_names),
        "weights": rounds.final_weights.tolist(),
        "score_regressions": {
            party: [regression.b.tolist(), regression.variance]
            for party, regression in regressions.items()
        },
        "scale_rows": is_scaled(own, trained.manifest),
        **_private_model(rounds, plan),
        "data": json.loads(own.data.settings.model_dump_json()),
        "manifest": json.loads(trained.manifest.model_dump_json()),
    }


def _private_model(rounds: RoundState, plan: RunPlan) -> dict[str, Any]:
    """Fields of the private model only: private weights or coefficients, and their deviations."""
    match rounds:
        case PrivatePassive(w_std=w_std, size=size) if w_std is not None:
            noise = plan.inner_noise
            return {
                "weights_private": True,
                "weights_std": w_std.tolist(),
                "score_size": size,
                "made_with": {name: noise[name].noise_std for name in noise},
            }
        case PrivateActive(fit=fit) if fit is not None:
            return {
                "weights_std": fit.w_std.tolist(),
                "coefficients": rounds.coefficients,
                "coefficients_std": dict(
                    zip(rounds.partners, fit.coefficient_std.tolist(), strict=True)
                ),
                "joint": fit.is_joint,
                "validation": {"loss": fit.loss, "gain": fit.gain, "gain_std": fit.gain_std},
                "held_out": dict(rounds.held_out),
                "partners_worth": dict(rounds.worth),
            }
        case PrivateActive(trouble=trouble) if trouble:
            return {"trouble": trouble}
        case _:
            return {}


def read_model(path: Path, settings: PartySettings) -> TrainedModel:
    """The model that the settings name; SettingsError if it is unsound or another party's."""
    where = f"model = {str(path)!r}"
    try:
        stored: dict[str, Any] = json.loads(path.read_text())
        owner = (stored["format"], stored["party"], stored["role"])
        model = TrainedModel(
            manifest=RunManifest.model_validate_json(json.dumps(stored["manifest"])),
            data=DataSettings.model_validate_json(json.dumps(stored["data"])),
            rows=int(stored["rows"]),
            dataset=str(stored["dataset"]),
            weights=_vector(stored["weights"]),
            weights_private=bool(stored.get("weights_private", False)),
            score_size=float(stored.get("score_size", 1.0)),
            coefficients={
                party: float(gamma) for party, gamma in stored.get("coefficients", {}).items()
            },
            score_regressions={
                party: ScoreRegression(_vector(b), float(variance))
                for party, (b, variance) in stored["score_regressions"].items()
            },
        )
    except OSError as missing:
        raise OperatorError(f"{where}: {missing.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        raise SettingsError(f"{where}: this is not a model of this version") from None
    if owner != (MODEL_FORMAT, settings.party, settings.role):
        raise SettingsError(f"{where}: it belongs to another party, role or version")
    _check(model, settings, where)
    return model


def _check(model: TrainedModel, settings: PartySettings, where: str) -> None:
    """Refuse weights that no training can have left: their price would be wrong."""
    is_active = settings.role == "active"
    columns = len(output_names(model.data)) + int(is_active and model.manifest.intercept)
    if {len(model.weights), *(len(each.b) for each in model.score_regressions.values())} != {
        columns
    }:
        raise SettingsError(f"{where}: its weights do not fit its columns")
    reach = prediction_of(model.manifest).weight_norm * (1.0 + 1e-9)
    if not is_active and float(np.linalg.norm(model.weights)) > reach:
        raise SettingsError(f"{where}: its weights are beyond the norm that its run allowed")


def _vector(numbers: list[float]) -> FloatVector:
    vector = np.array(numbers, dtype=np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ValueError("not a vector of finite numbers")
    return vector


def scoring_settings(model: TrainedModel, given: DataSettings) -> DataSettings:
    """The settings for reading rows to score: those of the model's rows, with another file."""
    plain = DataSettings(**{name: getattr(given, name) for name in _OF_THE_FILE})
    extra = [n for n in DataSettings.model_fields if getattr(given, n) != getattr(plain, n)]
    if extra:
        raise SettingsError(
            f"data.{', data.'.join(extra)}: with a model only "
            f"{', '.join(_OF_THE_FILE)} are given, the rest is the model's"
        )
    blank = {
        name: DataSettings.model_fields[name].default for name in (*_NO_LABEL, "weight_column")
    }
    mine = {name: getattr(given, name) for name in _OF_THE_FILE}
    return DataSettings(**{**dict(model.data), **blank, **mine})


def write_predictions(path: Path, own: Assets, state: Closed) -> None:
    """Write one line for every common row, in the order of the file: ids, theta, prediction.

    The prediction is the expected label in its own units, or the probability of the upper class.
    """
    model, trained = own.trained, state.trained
    assert trained is not None  # a completed run has had its round
    assert isinstance(trained.rounds, PredictionActive)
    theta = trained.rounds.theta
    assert theta is not None
    mean = family(model.manifest.loss).mean(theta)
    found = dict(zip(rows_of(own, trained.setup).order.tolist(), range(len(mean)), strict=True))
    values = mean * float(model.data.label_scale) + float(model.data.label_centre)
    settings, text = own.data.settings, io.StringIO()
    lines = csv.writer(text)
    lines.writerow([*settings.id_columns, "theta", "prediction"])
    row = 0
    assert settings.file is not None
    for chunk in TableFile.of(settings).chunks(settings.id_columns):
        for ids in zip(*(chunk[name].tolist() for name in settings.id_columns), strict=True):
            place = found.get(row)
            if place is not None:
                lines.writerow([*ids, repr(float(theta[place])), repr(float(values[place]))])
            row += 1
    if path.suffix == ".parquet":
        write_private(path, _parquet(text.getvalue(), settings.id_columns))
    else:
        write_private(path, text.getvalue())


def _parquet(lines: str, id_columns: tuple[str, ...]) -> bytes:
    from pyarrow import parquet  # noqa: PLC0415 - 10 MB that few runs need

    kinds = pa.csv.ConvertOptions(column_types=dict.fromkeys(id_columns, pa.string()))
    table = pa.csv.read_csv(io.BytesIO(lines.encode()), convert_options=kinds)
    made = io.BytesIO()
    parquet.write_table(table, made)
    return made.getvalue()
