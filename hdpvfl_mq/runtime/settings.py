"""Read TOML files into validated settings; errors name file, field and remedy.

It owns reading and the wording of errors; schemas/config.py and policy.py define what is valid.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli
import tomli_w
from pydantic import BaseModel, ValidationError

from hdpvfl_mq.errors import SettingsError

Model = TypeVar("Model", bound=BaseModel)
_KINDS = {
    "PartySettings": "a party's settings, such as party.toml",
    "PartyServiceSettings": "a party's settings, such as party.toml",
    "BrokerSettings": "a broker's settings, such as broker.toml",
    "BrokerServiceSettings": "a broker's settings, such as broker.toml",
    "PartyPolicy": "a policy, such as policy.toml",
    "RunManifest": "a manifest, such as manifest.toml",
}


def load_settings(schema: type[Model], path: Path) -> Model:
    """Read and check a TOML file."""
    try:
        values = tomli.loads(path.read_text())
    except OSError as missing:
        raise SettingsError(
            f"{path}: {missing.strerror}; give the path of {_KINDS.get(schema.__name__, 'a file')}"
        ) from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise SettingsError(f"{path} is not TOML: {broken}") from None
    return check_settings(schema, values, str(path))


def names(path: Path, field: str) -> bool:
    """Whether a settings file has this field; an unreadable file has none."""
    try:
        return field in tomli.loads(path.read_text())
    except (OSError, tomli.TOMLDecodeError, UnicodeDecodeError):
        return False


def check_settings(schema: type[Model], values: dict[str, Any], where: str) -> Model:
    """Check values that came as plain TOML or JSON types (lists stand for tuples)."""
    try:
        return schema.model_validate_json(json.dumps(values))
    except ValidationError as wrong:
        raise SettingsError(f"{where}: {describe_mistakes(wrong)}") from None
    except (TypeError, ValueError) as broken:
        raise SettingsError(f"{where}: {broken}") from None


def check_choice(choices: Any, value: str, where: str) -> Any:
    """Check that a value is one of a Literal type's."""
    if value not in get_args(choices):
        raise SettingsError(f"{where} = {value!r}: choose {', '.join(get_args(choices))}")
    return value


def describe_mistakes(wrong: ValidationError) -> str:
    """All mistakes in one text, each with its field."""
    return "; ".join(text for _, text in mistakes(wrong))


def mistakes(wrong: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """The place of each mistake, and its remedy."""
    found = []
    for error in wrong.errors(include_url=False, include_input=False):
        field = ".".join(str(part) for part in error["loc"])
        text = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            text = "unknown field; remove it or check its spelling"
        if error["type"] == "missing":
            text = "is missing; add it"
        found.append((error["loc"], f"{field}: {text}" if field else text))
    return found


def dump_settings(model: BaseModel) -> str:
    """The text of a settings file that `load_settings` can read."""
    return tomli_w.dumps(json.loads(model.model_dump_json(exclude_none=True)))


def fields_of(model: BaseModel) -> dict[str, Any]:
    """The fields of a model; dict(model) fails if a field is named keys, as for a mapping."""
    return {name: getattr(model, name) for name in type(model).model_fields}
