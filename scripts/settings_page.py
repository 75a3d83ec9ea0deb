"""Write docs/settings.md: every field of every settings file, from the schemas.

It owns the page. Types, limits and defaults come from the schemas; the meaning of a field comes
from WORDS or, if it is not there, from the comment beside the field in the schema.
Run: python -m scripts.settings_page
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemas import config, policy

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
FILES: dict[type[BaseModel], str] = {
    config.PartyServiceSettings: "party.toml of a service (`hdpvfl join` writes it)",
    config.BrokerServiceSettings: "broker.toml of a service (`hdpvfl init` writes it)",
    policy.PartyPolicy: "policy.toml (`hdpvfl join` writes it)",
    config.RunManifest: "the manifest of a run (`hdpvfl plan --write` writes it)",
    config.PartySettings: "party.toml for one run, without a federation",
    config.BrokerSettings: "broker.toml for one run, without a federation",
}
HEAD = """\
# Settings

Every field of every file, from the schemas that check them (`python -m scripts.settings_page`
writes this page). Unknown fields are errors. `hdpvfl check FILE...` finds all faults of files at
once, with their lines, and contradictions between files. Paths are relative to the folder in which
a command is run.
"""
WORDS = {
    "ActiveSide.local_steps": "steps on its own rows between two exchanges",
    "ActiveSide.step_size": "eta of the active party",
    "AlignmentSpec.ids": "how ids are read; the same at every party",
    "AlignmentSpec.method": "how common rows are found; auto chooses by size",
    "AlignmentSpec.rows_max": "most common rows; more end the run",
    "AlignmentSpec.rows_min": "fewest common rows; fewer end the run before anything is released",
    "BrokerServiceSettings.bind": "where the broker listens",
    "BrokerServiceSettings.federations": "the federations this broker hosts",
    "BrokerSettings.bind": "where the broker listens",
    "BrokerSettings.manifest": "the file with the run's manifest",
    "BrokerSettings.members": "every party of the run, with its keys",
    "Budget.delta": "delta; at most 1 / rows",
    "Budget.epsilon": "epsilon",
    "ColumnRule.categories": "one 0/1 column for each category; learn takes them from the rows",
    "ColumnRule.centre": "subtracted from a numeric column",
    "ColumnRule.missing": "what an empty cell of a numeric column becomes",
    "ColumnRule.missing_category": "what an empty cell of a column with categories becomes",
    "ColumnRule.scale": "what a numeric column is divided by after that",
    "ColumnRule.unknown": "what happens to a category outside the list",
    "DataSettings.columns": "columns to use, in this order; all but the special ones if left out",
    "DataSettings.decimal": "decimal mark of a CSV file",
    "DataSettings.default": "rule for columns without a rule of their own",
    "DataSettings.encoding": "encoding of a CSV file",
    "DataSettings.file": "CSV, Parquet, Arrow or Feather file, a folder of them, s3:// or hdfs://",
    "DataSettings.id_columns": "columns that identify the person of a row",
    "DataSettings.label_centre": "subtracted from a numeric label",
    "DataSettings.label_classes": "classes of a label, the first becomes 0",
    "DataSettings.label_column": "the label; the active party only",
    "DataSettings.label_kind": "what labels are; two classes unless other fields say more",
    "DataSettings.label_positive": "the class that becomes 1 against all others",
    "DataSettings.label_scale": "what a numeric label is divided by after that",
    "DataSettings.learned": "marks constants that an earlier preparation fitted to private rows",
    "DataSettings.offset_column": "column added to the score of a row",
    "DataSettings.on_disk": "keep prepared rows in a file instead of memory",
    "DataSettings.query": "SQL query to a database, instead of a file",
    "DataSettings.rules": "rules for single columns",
    "DataSettings.separator": "separator of a CSV file",
    "DataSettings.source": "the database, for instance postgresql://host/name",
    "DataSettings.weight_column": "weight of a row; the active party only",
    "Descent.active": "the active party's steps",
    "Descent.batch_rows": "rows of a batch; all rows if there are fewer",
    "Descent.early_stop": "public rule that ends a run early",
    "Descent.epochs": "passes over the rows",
    "Descent.passive": "the passive parties' steps",
    "Descent.step_decay": "how fast steps shrink: eta / (1 + decay * epoch)",
    "EarlyStop.patience": "epochs of released residuals without a fall in their energy",
    "EarlyStop.tolerance": "least fall that counts, as a share",
    "FederationSettings.name": "its name",
    "IdRules.casefold": "treat upper and lower case as the same",
    "IdRules.columns": "number of id columns",
    "IdRules.duplicates": "what happens to an id that occurs twice",
    "IdRules.empties": "what happens to an empty id",
    "EngineSettings.address": "the Dask scheduler, for instance tls://dask.example.org:8786",
    "EngineSettings.ca": "certificate of the cluster's authority, for tls://",
    "EngineSettings.certificate": "this party's certificate for the cluster",
    "EngineSettings.folder": "folder the workers share with the party; left out: rows are sent",
    "EngineSettings.key": "file with the secret key of that certificate",
    "EngineSettings.kind": "in the party's process, on all cores, or on the party's own cluster",
    "EngineSettings.workers": "worker processes of kind processes; all cores if left out",
    "IdRules.kind": "text, integer, email, telephone:DE, name or date; "
    "+ joins columns of one key, | separates keys",
    "LossSpec.dispersion": "phi of a Gamma loss",
    "LossSpec.huber_c": "where a Huber loss becomes linear",
    "LossSpec.label_high": "largest label; larger ones are clipped",
    "LossSpec.label_low": "smallest label; smaller ones are clipped",
    "LossSpec.name": "the loss",
    "LossSpec.offset_max": "largest offset of a row",
    "LossSpec.residual_clip": "L, the bound that derivatives of the loss are clipped to",
    "LossSpec.theta_max": "largest abs(theta) of a canonical Gamma loss",
    "LossSpec.theta_min": "smallest abs(theta) of a canonical Gamma loss",
    "LossSpec.weight_max": "largest weight of a row",
    "Member.curve_key": "public key of its connection, 64 hexadecimal digits",
    "NamedColumn.name": "the column",
    "PartyServiceSettings.proxy": "host:port of a SOCKS5 proxy that leads to the broker",
    "PartyPolicy.exact_scoring": "let un-noised scores leave; booked as an infinite cost",
    "PartyPolicy.guarantees": "guarantees a run may have",
    "PartyPolicy.lifetime": "cap of everything that is ever released about these people",
    "PartyPolicy.noises": "kinds of noise a run may use",
    "PartyPolicy.peers": "parties a run may have; all if left out",
    "PartyPolicy.rows_min": "fewest common rows a run may ask for",
    "PartyPolicy.run_epsilon_max": "largest epsilon of one run",
    "PassiveSide.step_size": "eta of a passive party",
    "PassiveSide.weight_norm": "k, the radius of the ball that holds its weights",
    "PartySettings.peers": "every other party and the coordinator, with their signing keys",
    "Peer.party": "its name",
    "Peer.role": "its role",
    "Peer.verify_key": "public key of its signatures, 64 hexadecimal digits",
    "PenaltySpec.mixing": "alpha of the elastic net",
    "PenaltySpec.name": "the penalty",
    "PenaltySpec.strength": "lambda",
    "Prediction.model_run": "the run that trained the model",
    "PrivateModel.weight_variance_max": "largest prior variance of weights",
    "PrivateModel.weight_norm": "largest norm of weights; longer weights are scaled back to it",
    "PrivateModel.signal_share": "prior variance of weights, as a share of the labels'",
    "PrivateModel.pure_share": "share of the budget for bounded noise",
    "RunManifest.absence": "what happens when a party stays away",
    "RunManifest.absent_after_s": "seconds of silence after which a party counts as away; a "
    "quarter of a second for each party if that is longer",
    "RunManifest.active_party": "the party with the label",
    "RunManifest.alignment": "how common rows are found",
    "RunManifest.budget": "epsilon and delta of every party for this run",
    "RunManifest.deadline_s": "seconds after which an unfinished run ends",
    "RunManifest.guarantee": "sound: proved; paper: as published; none: no privacy",
    "RunManifest.loss": "what is minimised",
    "RunManifest.method": "how a round is computed",
    "RunManifest.passive_parties": "the other parties",
    "RunManifest.penalty": "the penalty of weights",
    "RunManifest.rounds_ahead": "rounds that run without asking the coordinator",
    "RunManifest.run": "name of the run, new for every run",
    "RunManifest.seed": "public seed of the order of rows",
}
# Fields that mean the same in every file.
SHARED = {
    "broker": "address of the broker",
    "broker_curve_key": "public key of the broker's connection",
    "broker_verify_key": "public key of the broker's signatures",
    "data": "this party's rows",
    "engine": "what computes this party's products; docs/engines.md",
    "federation": "the federation this party belongs to",
    "ids": "how ids are read; equal to the manifest's",
    "keys": "folder with this process's secret keys",
    "kind": "which method",
    "log": "format of log lines",
    "log_level": "lowest level that is written",
    "party": "this party's name",
    "policy": "file with this party's policy",
    "role": "active (has the label) or passive",
    "run": "name of the run",
    "runs": "folder of journals, models and status, one folder for each run",
    "state": "folder of ledger, secrets and memberships; outlives runs",
}
_FIELD = re.compile(r"^    ([a-z_][a-z0-9_]*): [^#]*?(?:#\s*(.*))?$")


def comments(model: type[BaseModel]) -> dict[str, str]:
    """The comments beside or above each field of a model in the source."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(model).splitlines():
        if line.startswith("    #"):
            above.append(line.strip("# "))
            continue
        if field := _FIELD.match(line):
            text = field[2] or " ".join(above)
            if text:
                found[field[1]] = text
        above = []
    return found


def words(model: type[BaseModel], field: str) -> str | None:
    """The meaning of a field."""
    for owner in (each for each in model.__mro__ if issubclass(each, BaseModel)):
        if field in owner.__annotations__:
            said = WORDS.get(f"{owner.__name__}.{field}") or comments(owner).get(field)
            return said or SHARED.get(field)
    return None


def shapes(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and all models in its fields."""
    seen: dict[type[BaseModel], None] = {}

    def visit(hint: Any) -> None:
        if isinstance(hint, type) and issubclass(hint, BaseModel) and hint not in seen:
            seen[hint] = None
            for info in hint.model_fields.values():
                visit(info.annotation)
        for inner in getattr(hint, "__args__", ()):
            visit(inner)

    visit(model)
    yield from seen


def page() -> str:
    """The whole page."""
    parts, done = [HEAD], set()
    for model, text in FILES.items():
        for shape in shapes(model):
            if shape in done:
                continue
            done.add(shape)
            level, title = ("##", text) if shape is model else ("###", _doc(shape))
            parts.append(f"{level} {shape.__name__}\n\n{title}\n")
            parts.append(_table(shape))
    return "\n".join(parts)


def _doc(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _table(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    rows = ["| field | value | default | what it is |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        value = _value(schema["properties"][name])
        required = info.is_required()
        default = "required" if required else _default(info.default)
        meaning = (words(model, name) or "").replace("|", "\\|")
        rows.append(f"| `{name}` | {value} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "as below"
    if value is None:
        return "none"
    return f"`{json.dumps(value)}`"


def _value(schema: dict[str, Any]) -> str:
    """A description of a field's values."""
    kind = str(schema.get("type"))
    several = schema.get("anyOf") or schema.get("oneOf")
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        text = f"[{name}](#{name.lower()})"
    elif "const" in schema or "enum" in schema:
        choices = schema.get("enum", [schema.get("const")])
        text = ", ".join(f"`{json.dumps(each)}`" for each in choices)
    elif several:
        parts = [_value(each) for each in several if each.get("type") != "null"]
        text = " or ".join(dict.fromkeys(parts))
    elif kind == "array":
        text = "list of " + _value(schema.get("items", {}))
    else:
        text = _PLAIN.get(kind, "table") + _limits(schema)
    return text


_PLAIN = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
}


def _limits(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    parts = []
    if low is not None:
        parts.append(("at least " if "minimum" in schema else "above ") + f"{low:g}")
    if high is not None:
        parts.append(("at most " if "maximum" in schema else "below ") + f"{high:g}")
    return f", {', '.join(parts)}" if parts else ""


if __name__ == "__main__":
    PAGE.write_text(page())
