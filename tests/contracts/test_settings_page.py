"""docs/settings.md is what the script would write, and explains every field."""

from __future__ import annotations

import pytest

from scripts.settings_page import FILES, PAGE, SHARED, WORDS, page, shapes, words

MODELS = list(dict.fromkeys(shape for model in FILES for shape in shapes(model)))


def test_the_page_is_what_the_script_would_write():
    assert PAGE.read_text() == page(), "run: python -m scripts.settings_page"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_is_explained(model):
    assert [field for field in model.model_fields if not words(model, field)] == []


def test_nothing_is_explained_that_is_gone():
    fields = {f"{model.__name__}.{field}" for model in MODELS for field in model.model_fields}
    assert set(WORDS) <= fields
    assert set(SHARED) <= {field.split(".")[1] for field in fields}
