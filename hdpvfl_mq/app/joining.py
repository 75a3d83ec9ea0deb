"""What joining has brought, in the words of the active party's console and summary.

It owns these words. All of it comes from the active party's model file, stays on its machine, and
is not covered by the guarantee.
"""

from __future__ import annotations

from typing import Any


def joining(model: dict[str, Any]) -> dict[str, Any]:
    """Whether joining helped, from the active party's model; empty after descent."""
    if "partners_worth" not in model:
        return {}
    return {
        "is_joint": model["joint"],
        "validation": model["validation"],
        "held_out": model["held_out"],
        "each": {
            party: {
                "coefficient": model["coefficients"][party],
                "coefficient_std": model["coefficients_std"][party],
                "share_of_variance": share,
            }
            for party, share in model["partners_worth"].items()
        },
    }


def result_lines(model: dict[str, Any]) -> list[str]:
    """What an active party's operator reads after a training; without a fit, the reason."""
    if trouble := model.get("trouble"):
        return [f"warning: {trouble}; this model knows nothing of this party's columns"]
    found = joining(model)
    return [*partner_lines(found), *held_out_lines(found)]


def partner_lines(found: dict[str, Any]) -> list[str]:
    """One line on whether the model uses its partners, and one for each of them."""
    if not found:
        return []
    gain, error = found["validation"]["gain"], found["validation"]["gain_std"]
    lines = [
        f"partners {'used' if found['is_joint'] else 'not used'}: cross-validation on the "
        f"training's scores says that they lower the loss by {gain:.2g} (standard error "
        f"{error:.1g})"
    ]
    for party, each in found["each"].items() if found["is_joint"] else ():
        lines.append(
            f"         {party}: coefficient {each['coefficient']:.2f} (standard error "
            f"{each['coefficient_std']:.1g}), {each['share_of_variance']:.1%} of the variance of "
            "the predictions"
        )
    return lines


def held_out_lines(found: dict[str, Any]) -> list[str]:
    """The quality on rows held out; no line if there are none."""
    measured = dict(found.get("held_out", {}))
    if not measured:
        return []
    rows = int(measured.pop("rows"))
    shown = ", ".join(f"{name} {value:.4f}" for name, value in measured.items())
    return [f"held out {rows:,} rows, with scores as they left in training: {shown}"]
