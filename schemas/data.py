"""What a party's settings say about its file: which columns, and which constants.

It owns the fields and their limits; it reads no file. Constants written here cost no privacy.
`"learn"` fits them to the private rows instead, and then every figure of a run on such data is
labelled as conditional on preprocessing constants.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.base import Positive, Strict
from schemas.model import LabelKind

MAX_COLUMNS = 100_000
MAX_CATEGORIES = 10_000

ColumnName = Annotated[str, Field(min_length=1, max_length=256)]
_Category = Annotated[str, Field(min_length=1, max_length=256)]
_Categories = Annotated[tuple[_Category, ...], Field(min_length=2, max_length=MAX_CATEGORIES)]
_Number = Annotated[float, Field(ge=-1e18, le=1e18)]
_Learn = Literal["learn"]
_Columns = Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=MAX_COLUMNS)]


class ColumnRule(Strict):
    """How one column becomes numbers.

    `categories` turns it into one 0/1 column for each category; None leaves it numeric. `missing`
    says what happens to an empty cell: stop with an error, become a stated number (a stated
    category in categorical columns), or become the learned mean. `unknown` says what happens to a
    category outside the list. A numeric column becomes (x - centre) / scale.
    """

    categories: _Categories | _Learn | None = None
    missing: Literal["error"] | _Learn | _Number = "error"
    missing_category: _Category | None = None
    unknown: Literal["error", "zero"] = "error"
    centre: _Number | _Learn = 0.0
    scale: Positive | _Learn = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.categories is None:
            if self.missing_category is not None:
                raise ValueError("missing_category belongs to a column with categories")
            return self
        if self.missing != "error" or (self.centre, self.scale) != (0.0, 1.0):
            raise ValueError("missing, centre and scale belong to numeric columns")
        if self.categories != "learn" and len(set(self.categories)) != len(self.categories):
            raise ValueError("a category is listed twice")
        return self


class NamedColumn(ColumnRule):
    """A rule for one column."""

    name: ColumnName


class DataSettings(Strict):
    """A party's file and what is done with it.

    `file` is a file, a folder or an address such as s3://bucket/folder, and None if the table is
    passed in memory; the suffix gives the format. `separator`, `decimal` and `encoding` are those
    of a CSV file. `query` is sent once to the database `source`, instead of reading a file.
    `columns` None takes every column that has no other role. `rules` are exceptions from `default`.
    `label_kind` is what labels are: a row whose label is of another kind is refused before anything
    is sent, and a run whose loss takes another kind is refused by the kind, never by the labels.
    `label_classes` lists the classes of a text label, the first becomes 0; `label_positive` is the
    class that counts as 1 in this run, all others then count as 0. Classes are declared, never read
    off the data. `on_disk` keeps the rows in files instead of memory. `learned` marks constants
    that an earlier preparation fitted to private rows.
    """

    file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    query: Annotated[str, Field(min_length=1, max_length=65536)] | None = None
    source: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    separator: Annotated[str, Field(pattern=r"^[\x20-\x21\x23-\x7e\t]$")] = ","
    decimal: Literal[".", ","] = "."
    encoding: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$")] = "utf-8"
    id_columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=16)] = ("id",)
    empty_ids: Literal["error", "keep"] = "error"  # keep leaves them to the id rules
    label_column: ColumnName | None = None
    label_kind: LabelKind | None = None  # None: see `declared_kind`
    label_classes: _Categories | None = None
    label_positive: _Category | None = None
    label_centre: _Number | _Learn = 0.0
    label_scale: Positive | _Learn = 1.0
    weight_column: ColumnName | None = None
    offset_column: ColumnName | None = None
    columns: _Columns | None = None
    default: ColumnRule = ColumnRule()
    rules: Annotated[tuple[NamedColumn, ...], Field(max_length=MAX_COLUMNS)] = ()
    on_disk: bool = False
    learned: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.query is None) != (self.source is None):
            raise ValueError("query and source go together: a query, and the database it is for")
        if self.query is not None and self.file is not None:
            raise ValueError("file: rows come from a file or from a query, not from both")
        special = (self.label_column, self.weight_column, self.offset_column)
        roles = [*self.id_columns, *(name for name in special if name), *(self.columns or ())]
        if len(set(roles)) != len(roles):
            raise ValueError("a column has two roles or is listed twice")
        ruled = [rule.name for rule in self.rules]
        if len(set(ruled)) != len(ruled):
            raise ValueError("a column has two rules")
        if self.label_classes and (self.label_centre, self.label_scale) != (0.0, 1.0):
            raise ValueError("a label of classes takes no centre or scale")
        if self.label_positive and self.label_positive not in (self.label_classes or ()):
            raise ValueError("label_positive must be one of label_classes")
        if self.label_classes and self.label_kind == "positive":
            raise ValueError("label_kind: the first of label_classes becomes 0, no positive label")
        many = len(self.label_classes or ()) > 2 and self.label_positive is None
        if many and self.label_kind == "binary":
            raise ValueError("label_kind: of more than two classes, label_positive must name one")
        return self

    @property
    def declared_kind(self) -> LabelKind:
        """`label_kind`, or the kind that other fields imply: two classes unless they say more."""
        if self.label_kind is not None:
            return self.label_kind
        if self.label_classes:
            is_two = self.label_positive is not None or len(self.label_classes) == 2
            return "binary" if is_two else "count"
        return "binary" if (self.label_centre, self.label_scale) == (0.0, 1.0) else "real"
