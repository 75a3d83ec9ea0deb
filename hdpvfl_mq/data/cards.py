"""Facts about each data set: task, size, origin, licence, usual loss, constants of its label.

It owns facts only; it loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hdpvfl_mq.data.fetch import PublicSource, cut_adult, cut_credit, cut_dvisits
from schemas.model import LossSpec

_FATE = "https://raw.githubusercontent.com/FederatedAI/FATE"
_DVISITS = f"{_FATE}/24b591abdd10c7e9f1f902c633ef5e17cef16f9b/examples/data/dvisits_hetero"


@dataclass(frozen=True)
class Card:
    """One data set: its task, size and origin, and public constants for its label.

    `unit` divides a positive label; a loss for real labels uses (y - middle) / spread instead.
    With more than two `classes` there is one run for each class.
    """

    task: Literal["binary", "classes", "count", "positive"]
    loss: LossSpec
    rows: int
    columns: tuple[int, int]
    origin: str
    licence: str
    categorical: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    unit: float = 1.0
    middle: float = 0.0
    spread: float = 1.0
    public: PublicSource | None = None


CARDS: dict[str, Card] = {
    "visits": Card(
        task="binary",
        loss=LossSpec(name="logistic"),
        rows=20190,
        columns=(5, 4),
        origin="RAND Health Insurance Experiment, any doctor's visit in a year; from statsmodels",
        licence="public domain",
    ),
    "breast": Card(
        task="binary",
        loss=LossSpec(name="logistic"),
        rows=569,
        columns=(10, 20),
        origin="UCI WDBC, in scikit-learn",
        licence="CC BY 4.0",
    ),
    "credit": Card(
        task="binary",
        loss=LossSpec(name="logistic"),
        rows=30000,
        columns=(13, 10),
        origin="UCI default of credit card clients, as published by FATE",
        licence="CC BY 4.0",
        public=PublicSource(
            (f"{_FATE}/v1.3.0/examples/data/UCI_Credit_Card.csv",),
            cut_credit,
            "1c8b49a336da9b46db859c3190290e6a58d3965f3ffacfaec8ffb21db3434105",
        ),
    ),
    "adult": Card(
        task="binary",
        loss=LossSpec(name="logistic"),
        rows=32561,
        columns=(6, 8),
        origin="UCI Adult, adult.data",
        licence="CC BY 4.0",
        categorical=(
            "workclass",
            "education",
            "marital_status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "native_country",
        ),
        public=PublicSource(
            ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data",),
            cut_adult,
            "13300a6e3ac77cfa71bd694da3090036d289e418e6b39488cb423ad3a90f3150",
        ),
    ),
    "wine": Card(
        task="classes",
        loss=LossSpec(name="logistic"),
        rows=178,
        columns=(5, 8),
        origin="UCI wine recognition, in scikit-learn",
        licence="CC BY 4.0",
        classes=("class_0", "class_1", "class_2"),
    ),
    "dvisits": Card(
        task="count",
        loss=LossSpec(name="poisson", label_high=9.0, residual_clip=3.0),
        rows=5190,
        columns=(3, 9),
        origin="Australian Health Survey 1977-78, as published by FATE",
        licence="none stated; R faraway is GPL",
        public=PublicSource(
            (f"{_DVISITS}_guest.csv", f"{_DVISITS}_host.csv"),
            cut_dvisits,
            "a0bbd45d20a88c324b828941f0a7d63c32e1ad3822c490ee0d8115d6e84043af",
        ),
    ),
    "randhie": Card(
        task="count",
        loss=LossSpec(name="poisson", label_high=20.0, residual_clip=6.0),
        rows=20190,
        columns=(5, 4),
        origin="RAND Health Insurance Experiment, in statsmodels",
        licence="public domain",
    ),
    "meps": Card(
        task="positive",
        loss=LossSpec(name="gamma", label_low=0.01, label_high=10.0),
        rows=10391,
        columns=(16, 6),
        origin="Medical Expenditure Panel Survey, in linearmodels",
        licence="US survey data, none stated",
        unit=1000.0,
        middle=1300.0,
        spread=1500.0,
    ),
    "diabetes": Card(
        task="positive",
        loss=LossSpec(name="gamma", label_low=0.1, label_high=4.0),
        rows=442,
        columns=(4, 6),
        origin="Efron et al. 2004, in scikit-learn",
        licence="none stated",
        unit=100.0,
        middle=150.0,
        spread=75.0,
    ),
}
