"""The progress of a run, as a notebook shows it."""

from __future__ import annotations

from hdpvfl_mq.app.live_run import Progress


def test_progress_is_a_bar_with_escaped_text():
    fields = {"phase": "training", "outcome": "<b>x</b>", "round": 1, "rounds": 4}
    shown = Progress("training", fields)._repr_html_()
    assert shown == (
        '<progress max="1" value="0.2500"></progress> '
        "<span>&lt;b&gt;x&lt;/b&gt;, round 1 of 4</span>\n"
    )
