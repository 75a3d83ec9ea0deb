"""The page of results: tables and figures in words, every number from a CSV.

It owns the text; what is said about the paper quotes the issue's wording of its claims.
"""

# ruff: noqa: E501 - lines of prose
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from hdpvfl_mq.privacy.calibration import epsilon_of
from scripts.reproduction import methods, questions, targets, timing
from scripts.reproduction.grid import DATASETS, DELTA
from scripts.reproduction.tables import Row, chosen, markdown, mean, spread, values

Tables = dict[str, list[dict[str, Any]]]


def compose(found: Tables, drawn: Sequence[str], notes: dict[str, Any]) -> str:
    """The whole page."""
    sections: Iterable[Callable[[], str]] = (
        lambda: _head(notes),
        lambda: _targets(found["q1"]),
        lambda: _q1(found["q1"], drawn),
        lambda: _real_cost(found["q1"]),
        lambda: _q2(found, drawn),
        lambda: _q3(found, drawn),
        lambda: _differences(found),
        lambda: _attacks(found["attacks"], drawn),
        lambda: _variants(found["variants"]),
        _limits,
    )
    return "\n\n".join(text for make in sections if (text := make())) + "\n"


def _head(notes: dict[str, Any]) -> str:
    parts = notes["parts"]
    total = sum(part["seconds"] for part in parts.values())
    commands = ", ".join(f"`{c}`" for c in dict.fromkeys(p["command"] for p in parts.values()))
    libraries = ", ".join(f"{name} {number}" for name, number in notes["versions"].items())
    rows = [
        (name, f"{p['seconds']:.0f}", p["jobs"], p["load_5_min"], p["date"], p["commit"])
        for name, p in parts.items()
    ]
    table = markdown(
        ("part", "seconds", "processes", "load of the machine", "date", "commit"), rows
    )
    return f"""# The evaluation of the paper, run again

{commands}; {notes["machine"]}; {len(parts)} parts, {total / 60:.0f} minutes
added up. {libraries}.

All VFL runs with or without noise are whole federations of production roles (`Rehearsal`: entity
resolution, signatures, journals, ledgers), two parties, the paper's vertical split. Rows are sorted
by id and split 80/20 at random, unstratified, by numpy's generator with seeds 0 to 9; constants of
preprocessing come from the training rows (so every epsilon here is conditional on them), Adult's
categories are one-hot, then every party scales its rows to norm at most 1. References are
scikit-learn's logistic regression, C = 1, on the same row-scaled columns unless it says otherwise.
Cells are accuracy / AUC, means over the splits. The same seeds give the same figures, times apart. Where the table shows
several commits, the page was assembled from several calls of the command with `--parts`, some of them side by side, while
the sources changed, not all of it committed (the commit is the one at the start); seconds are those of a machine with the load shown, which has as many cores as said above.

{table}"""


def _targets(q1: Sequence[Row]) -> str:
    verdicts = targets.all_verdicts(q1, values(chosen(q1, method=methods.SOUND), "epsilon"))
    if not verdicts:
        return ""
    labels = list(dict.fromkeys(v.splits for v in verdicts))
    lines = []
    for dataset, target in dict.fromkeys((v.dataset, v.target) for v in verdicts):
        same = {v.splits: v for v in verdicts if (v.dataset, v.target) == (dataset, target)}
        lines.append((dataset, target, *(cell for name in labels for cell in _cells(same[name]))))
    asked = [v for v in verdicts if "not row-scaled" not in v.target]
    further = [v for v in verdicts if "not row-scaled" in v.target]
    heads = [head for name in labels for head in (f"splits {name}: found / needed", "")]
    table = markdown(("data", "target", *heads), lines)
    return f"""## What was to be reached

Sound mode as the planner recommends it, delta = {DELTA:g}, means over the splits. {_count(asked)} targets are
met (each on both sets of splits). The lines "not row-scaled" were not asked for: they compare with what the active
party could do alone outside the protocol, on standardised columns without the row scaling that any
bound needs ({_count(further)}). "At every epsilon" shows the epsilon that comes out lowest.

The constants of the method were chosen on other splits of the same three data sets (docs/one-round.md). Splits 0-9 and
10-19 are therefore both new draws, neither is new data. The standard error of a mean over ten splits, one draw of noise
each, is {_errors(q1)}. A target that is met by less than
that could fall the other way with other seeds; the closest call: {_closest(asked)}.

{table}"""


def _errors(q1: Sequence[Row]) -> str:
    texts = []
    for dataset in values(q1, "dataset"):
        rows = chosen(q1, dataset=dataset, method=methods.SOUND, delta=DELTA, epsilon=1.0)
        error = spread(rows, "accuracy") / math.sqrt(10)
        texts.append(f"{error:.4f} of accuracy on {dataset}")
    return ", ".join(texts)


def _closest(verdicts: Sequence[targets.Verdict]) -> str:
    known = [v for v in verdicts if not math.isnan(v.found - v.asked)]
    if not known:
        return "none"
    near = min(known, key=lambda v: abs(v.found - v.asked))
    where = f"{near.dataset}, {near.target}, splits {near.splits}"
    return f"{where}, {'met' if near.met else 'missed'} by {abs(near.found - near.asked):.5f}"


def _cells(verdict: targets.Verdict) -> tuple[str, str]:
    at = f" (epsilon {verdict.epsilon:g})" if "every" in verdict.target else ""
    found = f"{verdict.found:.5f} / {verdict.asked:.5f}{at}"
    return found, "met" if verdict.met else "**not met**"


def _count(verdicts: Sequence[targets.Verdict]) -> str:
    return f"{sum(v.met for v in verdicts)} of {len(verdicts)}"


def _pair(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return f"{mean(rows, 'accuracy'):.3f} / {mean(rows, 'auc'):.3f}"


def _q1(q1: Sequence[Row], drawn: Sequence[str]) -> str:
    if not q1:
        return ""
    text = ["## Q1: privacy against accuracy", _references(q1)]
    for delta in values(q1, "delta"):
        text.append(f"### delta = {delta:g}")
        text += [f"![]({name})" for name in drawn if name.endswith(f"delta_{delta:g}.png")]
        epsilons = values(chosen(q1, delta=delta), "epsilon")
        lines = []
        for dataset in values(q1, "dataset"):
            for method, splits, name in (
                (methods.PUBLISHED, range(10), "as published"),
                (methods.SOUND, range(10), "sound"),
                (methods.SOUND, range(10, 20), "sound, splits 10-19"),
            ):
                rows = chosen(q1, dataset=dataset, method=method, delta=delta, split=splits)
                if rows:
                    cells = [_pair(chosen(rows, epsilon=e)) for e in epsilons]
                    lines.append((dataset, name, *cells))
        text.append(markdown(("data", "HDP-VFL", *(f"{e:g}" for e in epsilons)), lines))
    return "\n\n".join(text)


def _references(q1: Sequence[Row]) -> str:
    names = [m for m in dict.fromkeys(r["method"] for r in q1) if not _noised(m)]
    lines = []
    for name in names:
        cells = [_spread(chosen(q1, dataset=d, method=name, split=range(10))) for d in DATASETS]
        lines.append((name, *cells))
    return (
        "Without noise (accuracy and its standard deviation over splits 0-9 / AUC):\n\n"
        + markdown(("method", *DATASETS), lines)
        + """

"VFL without privacy" is the same roles with exact values, 200 full-batch epochs. With the settings of
the paper (e = 10, b = 3200, lambda = 0.001, k = 1, eta = 0.1) it learns less, and the published method ends at that line
however large epsilon is. Tried without noise on two splits of Adult: at eta = 0.1 the steps are too short (norms 0.92 and
0.78, the same with k = 10); at eta = 1 and 3 the ball binds, and k = 10 at eta = 1 brings 0.763 / 0.864 to 0.828 / 0.876. HE-VFL is
computed without the cipher, which changes weights by less than 1e-6 (below)."""
    )


def _noised(method: str) -> bool:
    return method in (methods.PUBLISHED, methods.SOUND)


def _spread(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    accuracy, auc = mean(rows, "accuracy"), mean(rows, "auc")
    return f"{accuracy:.3f} ({spread(rows, 'accuracy'):.3f}) / {auc:.3f}"


def _real_cost(q1: Sequence[Row]) -> str:
    rows = chosen(q1, method=methods.PUBLISHED, delta=DELTA)
    if not rows:
        return ""
    lines = []
    for dataset in values(rows, "dataset"):
        for epsilon in values(rows, "epsilon"):
            here = chosen(rows, dataset=dataset, epsilon=epsilon)
            cells = []
            for side in ("mu_active", "mu_passive"):
                mu = mean(here, side)
                cells += [f"{mu:.3g}", f"{epsilon_of(mu, DELTA):.3g}"]
            if epsilon in (0.1, 1.0, 10.0):
                lines.append((dataset, f"{epsilon:g}", *cells))
    header = ("data", "named epsilon", "mu, active", "epsilon", "mu, passive", "epsilon")
    return f"""### What the published noise really costs

The ledger books a published run under sound bounds (docs/privacy.md): the passive party does not clip
what it receives, so its weights may differ by 2k. Real epsilon at delta = {DELTA:g}:

{markdown(header, lines)}"""


def _q2(found: Tables, drawn: Sequence[str]) -> str:
    text = []
    if q2 := found["q2"]:
        epsilons = values(q2, "epsilon")
        pairs = sorted({(r["epochs"], r["k"]) for r in q2})
        lines = [
            (f"{e:g}", f"{k:g}", *(_spread(chosen(q2, epochs=e, k=k, epsilon=x)) for x in epsilons))
            for e, k in pairs
        ]
        text += ["## Q2: the hyper-parameters, Breast, as published", "![](q2.png)"]
        text.append(markdown(("e", "k", *(f"{e:g}" for e in epsilons)), lines))
        text.append(
            "At small epsilon a small k does better in this table; e shows no clear effect (see below); at "
            "large epsilon neither matters: without noise weights end at a norm of 0.25, inside the balls of "
            "0.5 and 1, and their length does not change who is above the threshold much. Why a small k "
            "helps was not tested."
        )
    if steps := found["steps"]:
        epsilons = values(steps, "epsilon")
        lines = [
            (d, f"{eta:g}", *(_pair(_step(steps, d, eta, e)) for e in epsilons))
            for d in values(steps, "dataset")
            for eta in values(steps, "step_size")
        ]
        head = ("data", "eta", *("no noise" if math.isinf(e) else f"{e:g}" for e in epsilons))
        text.append(f"""### The step size, which the paper leaves open

We take eta = {methods.STEP_SIZE:g} for both sides: with it Lemma 2 happens to hold over a whole run on
Breast, with 0.5 and more it is exceeded (docs/privacy.md). It was fixed before Q1 was run, and it is not the best for the
published method everywhere: take the best row of each column below to be kind to it, and compare with the sound method
in Q1. First three splits, at epsilon:

{markdown(head, lines)}""")
    if tuned := found["tuned"]:
        text.append(_tuned(tuned))
    return "\n\n".join(text)


def _step(rows: Sequence[Row], dataset: str, eta: float, epsilon: float) -> list[Row]:
    return chosen(rows, dataset=dataset, step_size=eta, epsilon=epsilon)


def _tuned(tuned: Sequence[Row]) -> str:
    lines = []
    for epsilon in values(tuned, "epsilon"):
        for charged, name in ((0.0, "not charged (as the paper)"), (1.0, "charged")):
            rows = chosen(tuned, epsilon=epsilon, charged=charged)
            picked = ", ".join(f"{r['epochs']:g}/{r['k']:g}" for r in rows)
            lines.append((f"{epsilon:g}", name, _spread(rows), picked))
    runs = int(tuned[0]["runs"])
    return f"""### e and k by cross-validation

Breast, 5 folds, e in {{5, 10, 15}}, k in {{0.1, 0.5, 1}}: a row takes part in {runs} runs. Charged means
that all of them together have the noise of one run at epsilon, so each has epsilon / sqrt({runs}). The
validation accuracies that choose are exact even then, so the second line is still too kind. With so few splits, at epsilon = 0.1
and 10 the two lines differ by no more than splits do.

{markdown(("epsilon", "cross-validation", "accuracy (sd) / AUC", "chosen e/k by split"), lines)}"""


def _q3(found: Tables, drawn: Sequence[str]) -> str:
    q3, he = found["q3"], found["he"]
    text = []
    if q3:
        text += ["## Q3: time", "![](q3.png)", _ratios(q3)]
    if he:
        text.append(_encrypted(he, q3))
    return "\n\n".join(text)


def _ratio(q3: Sequence[Row], method: str, measure: str, **where: Any) -> list[float]:
    """Ratios to non-private VFL in the same repetition, sorted."""
    ratios = []
    for repetition in values(q3, "repetition"):
        rows = chosen(q3, repetition=repetition, **where)
        base = mean(chosen(rows, method=methods.NON_PRIVATE), measure)
        ratios.append(mean(chosen(rows, method=method), measure) / base)
    return sorted(ratios)


def _ratios(q3: Sequence[Row]) -> str:
    lines = []
    for part, by in (("epochs", "epochs"), ("rows", "rows")):
        for point in values(chosen(q3, part=part), by):
            where = {"part": part, by: point}
            base = chosen(q3, method=methods.NON_PRIVATE, **where)
            cells = []
            for method in (methods.PUBLISHED, timing.SOUND_DESCENT, methods.SOUND):
                cells.append(_ratio_cell(q3, method, where))
            size = f"{base[0]['rows']:,.0f}", f"{base[0]['epochs']:g}"
            took = " / ".join(f"{1000 * mean(base, m):.0f}" for m in ("computing", "seconds"))
            lines.append((*size, took, *cells))
    header = (
        "rows",
        "epochs",
        f"{methods.NON_PRIVATE}, ms: computing / clock",
        "as published",
        "sound, descent",
        "sound, recommended",
    )
    return f"""Broker, active and passive party are processes that talk over encrypted sockets on this machine;
{timing.COLUMNS[0]} + {timing.COLUMNS[1]} columns of made-up rows, b = {timing.BATCH_ROWS}. Training phase only. Methods follow each other within
a repetition ({len(values(q3, "repetition"))} of them); cells are ratios of computing time of both parties, then of the clock: median (smallest-largest).
The machine was shared while this ran (see the load above): the clock mostly shows its other users, and computing time
still varies by tens of per cent, so differences of that size mean nothing. Epochs come from the clock of one long run.
Epsilon is {timing.EPSILON:g}; others were not timed. The recommended method has one round whatever the epochs.

{markdown(header, lines)}"""


def _ratio_cell(q3: Sequence[Row], method: str, where: dict[str, Any]) -> str:
    if not chosen(q3, method=method, **where):
        return ""
    computing, clock = (_ratio(q3, method, m, **where) for m in ("computing", "seconds"))
    spans = (f"{median(r):.2f} ({r[0]:.2f}-{r[-1]:.2f})" for r in (computing, clock))
    return ", ".join(spans)


def _base(q3: Sequence[Row]) -> float:
    """Computing time of one epoch of 10,000 rows without privacy."""
    rows = chosen(q3, part="rows", method=methods.NON_PRIVATE, rows=10_000.0)
    return mean(rows, "computing")


def _encrypted(he: Sequence[Row], q3: Sequence[Row]) -> str:
    base = _base(q3)
    lines = []
    for row in he:
        if row.get("missing"):
            lines.append((row["cipher"], row["missing"], "", "", "", ""))
            continue
        scaled = row["seconds_10000_rows"]
        lines.append(
            (
                row["cipher"],
                f"{row['rows']:,.0f}",
                f"{row['seconds']:.1f} s",
                f"{scaled:,.1f} s",
                f"{scaled / base:,.0f}" if base > 0.0 else "",
                f"{row['bytes_10000_rows'] / 1e6:.0f} MB",
                f"{row['largest_difference']:.0e}",
            )
        )
    header = (
        "cipher",
        "rows measured",
        "one epoch",
        "scaled to 10,000 rows",
        "ratio to VFL without privacy",
        "bytes",
        "difference of the weights",
    )
    return f"""### HE-VFL

After Hardy et al. (2017): Taylor polynomial of the loss, arbiter with the key, masked gradients; Paillier
with `phe` and gmpy2, CKKS with `tenseal` (`pip install -r requirements-he.txt`). Measured in one process
without sockets on the rows shown, one epoch, and **scaled**: by rows, masks and decryption by
batches; computing time of all parties,
compared with that of both parties without privacy.

{markdown(header, lines)}"""


def _differences(found: Tables) -> str:
    q1, q3, he = found["q1"], found["q3"], found["he"]
    text = ["## Where this differs from the paper's text"]
    if found["q2steps"]:
        text.append(_fewer_epochs(found["q2steps"]))
    if q1:
        text.append(_half(q1))
    if q3 and he:
        text.append(_slower(q3, he))
    return "\n\n".join(text) if len(text) > 1 else ""


def _fewer_epochs(rows: Sequence[Row]) -> str:
    epochs, etas = values(rows, "epochs"), values(rows, "step_size")
    lines = [
        (f"{eta:g}", *(_spread(chosen(rows, step_size=eta, epochs=e)) for e in epochs))
        for eta in etas
    ]
    table = markdown(("eta", *(f"e = {e:g}" for e in epochs)), lines)
    low = [r for r in rows if r["accuracy"] <= 0.65]
    ends = [
        [chosen(rows, step_size=eta, epochs=e) for e in (epochs[0], epochs[-1])] for eta in etas
    ]
    fall = max(mean(first, "accuracy") - mean(last, "accuracy") for first, last in ends)
    return f"""**"0.9 to about 0.6 when e goes from 5 to 15 at epsilon 1" (Breast).** As published, {len(values(rows, "noise_seed"))} draws of noise for
each split:

{table}

The largest fall of the mean from e = {epochs[0]:g} to {epochs[-1]:g} at any step size is {fall:.3f}. A reason for eta = 0.1: the noise of a release
grows like sqrt(e), but weights are a sum of e steps; their signal grows like e, their noise like sqrt(e) times the noise of
a release, which is e again, as long as they stay inside the ball. With longer steps the ball is reached and this argument
ends; we have no explanation of the paper's figure there. Single runs vary widely: {len(low)} of {len(rows)} of
these come out at 0.65 or below, so a figure made of few runs may show such a fall by chance."""


def _half(q1: Sequence[Row]) -> str:
    lines = []
    for dataset in values(q1, "dataset"):
        rows = chosen(q1, dataset=dataset, split=range(10))
        lossless = mean(chosen(rows, method=methods.NON_PRIVATE), "accuracy")
        cells = []
        for epsilon in (0.001, 0.01, 0.1):
            here = chosen(rows, method=methods.PUBLISHED, delta=DELTA, epsilon=epsilon)
            cells.append(
                f"{_spread(here)}, {mean(here, 'accuracy') / lossless:.0%}" if here else ""
            )
        lines.append((dataset, f"{lossless:.3f}", *cells))
    table = markdown(("data", "lossless", "0.001", "0.01", "0.1"), lines)
    return f"""**"Half the lossless accuracy below 0.1."** As published, with the share of the lossless accuracy:

{table}

With two classes half the lossless accuracy is a coin. On Breast the means are near that, with a spread over splits of a
quarter. Credit and Adult stay near the share of their larger class while the AUC shows that little was learnt; the likely
reason, not tested, is the active party's intercept, which learns from its own un-noised residual."""


def _slower(q3: Sequence[Row], he: Sequence[Row]) -> str:
    base = _base(q3)
    paillier = [r for r in he if not r.get("missing") and "Paillier" in r["cipher"]]
    shown = f"{paillier[0]['seconds_10000_rows'] / base:,.0f} times" if paillier else "not measured"
    return f"""**"2 to 3 times slower" for HE.** Here Paillier computes {shown} as long as VFL without privacy in an epoch of
10,000 rows ({1000 * base:.0f} ms). One encryption with a 2048-bit key takes about
as long as a whole round without privacy. The paper's seconds were not at hand; our guess is that its federation without
privacy spent most of its time outside arithmetic, so that ciphers added little."""


def _attacks(rows: Sequence[Row], drawn: Sequence[str]) -> str:
    if not rows:
        return ""
    lines = []
    for row in rows:
        reached = f"{row['auc']:.3f} ± {row['auc_error']:.3f}"
        before = f"{row['auc_before']:.3f}" if row.get("auc_before") not in ("", None) else "0.500"
        tpr, bound = row.get("tpr"), row.get("tpr_bound")
        few = f"{tpr:.3f} / {bound:.3f}" if bound not in ("", None) else ""
        lines.append(
            (
                row["attack"] + (f" ({row['target']})" if row.get("target") else ""),
                row["dataset"],
                row["method"],
                f"{row['epsilon']:g}" if row["epsilon"] != "" else "",
                f"{row['mu']:.3g}" if not math.isinf(row["mu"]) else "infinite",
                before,
                reached,
                f"{row['auc_bound']:.3f}",
                few,
            )
        )
    header = (
        "attack",
        "data",
        "run",
        "epsilon",
        "mu",
        "AUC before",
        "AUC reached",
        "AUC at most",
        "true positives at 1 % false: reached / at most",
    )
    games = [r for r in rows if r["attack"] == "one label"]
    played = "; ".join(
        f"epsilon = {r['epsilon']:g}: mu {r['mu_reached']:.3f} of {r['mu']:.3f}" for r in games
    )
    return f"""## Attacks on the transcript

Run on releases decoded from the journals of real runs. *labels*: a passive party takes the sign of the residuals
(the direct label inference of the literature on VFL); *features*: the active party fits a sensitive attribute to its
own columns and all scores it saw, knowing the attribute of a quarter of the rows (feature inference after Luo et al.
2021); "before" is the same attacker without the scores. *one label*: the game of the definition, everything known
but one label, the best test there is. The bound is that of the run's real mu; for features it is an estimate, simulated from
the log-odds of the attacker without scores. Errors are one standard error. The AUC that
exceeds its bound most does so by {_excess(rows):.1f} of them. Under the published noise the bound for features is idle: it counts an active
party that may send anything, and this attacker only listens; that it gains nothing does not make the run safe.

![](attacks.png)

{markdown(header, lines)}

How much of the promised mu the game reaches (largest of twenty rows): {played}. It stays below because
the bound allows for the worst row and data, not these. The audit of the privacy layer (`scripts/audit_privacy.py`) attacks
constructed worst cases and thirteen planted bugs."""


def _excess(rows: Sequence[Row]) -> float:
    """By how many standard errors an attack is above its bound, at most; not below 0."""
    above = [(r["auc"] - r["auc_bound"]) / r["auc_error"] for r in rows if r["auc_error"] > 0.0]
    return max([0.0, *above])


def _variants(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    columns = [(d, e) for d in values(rows, "dataset") for e in values(rows, "epsilon")]
    lines = []
    for name in questions.VARIANTS:
        here = chosen(rows, variant=name)
        if here:
            lines.append((name, *(_pair(chosen(here, dataset=d, epsilon=e)) for d, e in columns)))
    splits = len(values(rows, "split"))
    return f"""## What was tried and did not help

docs/one-round.md has the list of the trials behind the method (several rounds, centred scores, other priors). Here the
sound method with other constants and as descent, same roles, {splits} splits (a difference below 0.003 of accuracy
is noise on Credit and Adult, below 0.01 on Breast). One rule has to serve all data sets and budgets; what gains in one
column (kappa = 0.25 or no extra shrinking on Adult at 0.1) loses in another.

{markdown(("sound method", *(f"{d}, {e:g}" for d, e in columns)), lines)}"""


def _limits() -> str:
    return """## Limits

- Two parties; one noise seed per split in Q1. The splits overlap, so standard deviations are not those of new data.
- Constants of preprocessing are fitted to the training rows and not charged, in all methods.
- The paper's full text was not at hand: its claims are taken from the issue, its figures were not compared point by point.
- Adult's vertical split (6 numeric, 8 categorical columns) is assumed from the column counts.
- HE-VFL has no sockets and its accuracy comes from the same protocol without the cipher."""
