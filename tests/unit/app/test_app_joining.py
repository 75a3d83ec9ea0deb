"""What the active party's operator reads after a training."""

from __future__ import annotations

from hdpvfl_mq.app.joining import joining, result_lines

MODEL = {
    "joint": True,
    "validation": {"loss": 0.6, "gain": 0.00123, "gain_std": 0.00048},
    "held_out": {"rows": 1000.0, "accuracy": 0.7, "auc": 0.61234},
    "coefficients": {"shop": 0.512},
    "coefficients_std": {"shop": 0.11},
    "partners_worth": {"shop": 0.0421},
}


def test_coefficients_and_quality_come_with_their_errors():
    assert result_lines(MODEL) == [
        "partners used: cross-validation on the training's scores says that they lower the loss "
        "by 0.0012 (standard error 0.0005)",
        "         shop: coefficient 0.51 (standard error 0.1), 4.2% of the variance of the "
        "predictions",
        "held out 1,000 rows, with scores as they left in training: accuracy 0.7000, auc 0.6123",
    ]


def test_partners_that_are_not_used_have_no_lines():
    first, *others = result_lines({**MODEL, "joint": False, "held_out": {}})
    assert first.startswith("partners not used: ")
    assert others == []


def test_a_fit_that_failed_is_told_to_the_operator():
    """Bug: only model.json said so, and its weights were those before the training."""
    (line,) = result_lines({"trouble": "the last fit failed: look for columns of extreme size"})
    assert line.startswith("warning: the last fit failed")


def test_descent_has_nothing_to_say():
    assert joining({}) == {}
    assert result_lines({}) == []
