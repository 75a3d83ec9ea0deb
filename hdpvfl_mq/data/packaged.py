"""Data sets that come inside Python packages, including this one, split in two.

It owns which package column belongs to which side; it knows nothing of losses or folders. Rows are
shuffled separately on each side, so that nothing can rely on a common order by accident.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from importlib import import_module, resources
from typing import Any

import numpy as np

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import SettingsError

Pair = tuple[Table, Table]

MEPS_ACTIVE = [
    "age",
    "female",
    "black",
    "hisp",
    "marry",
    "educyr",
    "income",
    "ssiratio",
    "poverty",
    "lowincome",
    "midincome",
    "msa",
    "private",
    "hi_empunion",
    "firmsz",
    "multlc",
]
MEPS_PASSIVE = ["vegood", "good", "fair", "poor", "priolist", "totchr"]
RANDHIE_ACTIVE = ["physlm", "disea", "hlthg", "hlthf", "hlthp"]
RANDHIE_PASSIVE = ["lncoins", "idp", "lpi", "fmde"]
DIABETES_ACTIVE = ["age", "sex", "bmi", "bp"]
WINE_ACTIVE = ["alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium"]
DIABETES_PASSIVE = ["s1", "s2", "s3", "s4", "s5", "s6"]


def breast() -> Pair:
    """Wisconsin breast cancer: the ten `worst` features active, means and errors passive."""
    bunch = _module("sklearn.datasets").load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in bunch.feature_names]
    columns = dict(zip(names, bunch.data.T, strict=True))
    worst = [name for name in names if name.startswith("worst_")]
    return _pair(columns, bunch.target, worst, [name for name in names if name not in worst])


def wine() -> Pair:
    """Three cultivars: five measurements active, eight passive."""
    bunch = _module("sklearn.datasets").load_wine()
    columns = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
    others = [name for name in bunch.feature_names if name not in WINE_ACTIVE]
    return _pair(columns, bunch.target_names[bunch.target], WINE_ACTIVE, others)


def diabetes() -> Pair:
    """Disease progression after one year, unscaled features."""
    bunch = _module("sklearn.datasets").load_diabetes(scaled=False)
    columns = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
    return _pair(columns, bunch.target, DIABETES_ACTIVE, DIABETES_PASSIVE)


def randhie() -> Pair:
    """RAND health insurance experiment: outpatient visits."""
    frame = _module("statsmodels.datasets.randhie").load_pandas().data
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return _pair(columns, columns["mdvis"], RANDHIE_ACTIVE, RANDHIE_PASSIVE)


def visits() -> Pair:
    """Whether a person in the RAND experiment saw a doctor that year; bundled in this package."""
    with resources.files("hdpvfl_mq.data").joinpath("visits.csv.gz").open("rb") as file:
        text = gzip.decompress(file.read()).decode()
    head, cells = text.split("\n", 1)
    values = np.loadtxt(cells.splitlines(), delimiter=",").T
    columns = dict(zip(head.split(","), values, strict=True))
    return _pair(columns, columns["y"].astype(np.int64), RANDHIE_ACTIVE, RANDHIE_PASSIVE)


def meps() -> Pair:
    """Medical expenditure panel survey: spending on drugs."""
    frame = _module("linearmodels.datasets.meps").load()
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return _pair(columns, columns["drugexp"], MEPS_ACTIVE, MEPS_PASSIVE)


PACKAGED: dict[str, Callable[[], Pair]] = {
    "visits": visits,
    "breast": breast,
    "wine": wine,
    "diabetes": diabetes,
    "randhie": randhie,
    "meps": meps,
}


def _pair(columns: dict[str, Any], y: Any, active: list[str], passive: list[str]) -> Pair:
    ids = np.arange(len(y), dtype=np.int64)
    left = Table.of({"id": ids, "y": np.asarray(y)} | {name: columns[name] for name in active})
    right = Table.of({"id": ids} | {name: columns[name] for name in passive})
    return (
        left.take(np.random.default_rng(1).permutation(len(ids))),
        right.take(np.random.default_rng(2).permutation(len(ids))),
    )


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.split(".", 1)[0]
        raise SettingsError(
            f"this data set needs {package}: pip install 'hdpvfl-mq[data]'"
        ) from error
