"""A published table, simulated: the zero-bubble paper's bubble rates, from the times that it measured."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures._page import page
from gpipe_sim import (
    ZBH1,
    ZBH2,
    Interleaved1F1B,
    OneFOneB,
    Schedule,
    Timeline,
    simulate,
    span_bubble,
    useful_time,
)
from gpipe_sim.drawing.palette import CURVES, INK, MARKERS
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE, finish, legend_outside
from gpipe_sim.theory.published import ZERO_BUBBLE, ZeroBubbleRun

FAMILIES = {"1F1B": OneFOneB, "interleaved": Interleaved1F1B, "ZB-H1": ZBH1, "ZB-H2": ZBH2}
ASIDE = dict(zip(FAMILIES, (-0.27, -0.09, 0.09, 0.27), strict=True))  #: marks side by side, none hidden
DIGITS = 4  #: after the point, as the paper prints


def data() -> dict:
    """simulated[name][i] and published[name][i]: the span bubble of settings[i], to the printed digits.

    k_messages_fewer[i]: that of interleaved 1F1B, if its longest span were K messages shorter.
    """
    return {
        "settings": [[run.model, run.devices, run.microbatches] for run in ZERO_BUBBLE],
        "published": {
            name: [run.bubble_rates[family.__name__] for run in ZERO_BUBBLE]
            for name, family in FAMILIES.items()
        },
        "simulated": {
            name: [round(span_bubble(timeline_of(family, run)), DIGITS) for run in ZERO_BUBBLE]
            for name, family in FAMILIES.items()
        },
        "k_messages_fewer": [round(k_messages_fewer(run), DIGITS) for run in ZERO_BUBBLE],
    }


def timeline_of(family: type[Schedule], run: ZeroBubbleRun) -> Timeline:
    """One step of one setting, simulated."""
    size = run.devices, run.microbatches
    schedule = family(*size, run.stages_per_device) if family is Interleaved1F1B else family(*size)
    return simulate(schedule, run.costs(schedule.stages_per_device))


def k_messages_fewer(run: ZeroBubbleRun) -> float:
    """The span bubble of interleaved 1F1B, were its longest span K messages shorter."""
    timeline = timeline_of(Interleaved1F1B, run)
    longest = max(row[-1].end - row[0].start for row in timeline.rows)
    return 1 - useful_time(timeline) / run.devices / (longest - run.devices * run.comm)


def draw(data: dict) -> Figure:
    figure, (rates, apart) = page(6.4, 2, sharex=True, height_ratios=(3, 2))
    draw_rates(rates, data)
    draw_differences(apart, data)
    names = [f"{model}\nK = {k}, M = {m}" for model, k, m in data["settings"]]
    apart.set_xticks(range(len(names)), names)
    return figure


def draw_rates(ax: Axes, data: dict) -> None:
    """Published rates as rings, simulated ones as marks inside them."""
    ring = {"ms": 11, "mfc": "none", "mec": INK, "lw": 0}
    for i, name in enumerate(FAMILIES):
        ax.plot(_places(data, name), data["simulated"][name], MARKERS[i], color=CURVES[i], ms=5, label=name)
        ax.plot(_places(data, name), data["published"][name], "o", **ring)
    ax.plot([], [], "o", label="published", **ring)
    _finish(ax, "span bubble", "The zero-bubble paper's bubble rates (rings) and simulated ones (marks)")
    ax.set_ylim(0, None)
    ax.tick_params(axis="x", length=0)


def draw_differences(ax: Axes, data: dict) -> None:
    """Simulated minus published rates, too small to see above; in units of the last printed digit."""
    rates, published = data["simulated"], data["published"]
    messages = _apart(rates["interleaved"], data["k_messages_fewer"])
    bars = {"width": 0.16, "color": "none", "edgecolor": INK, "label": "K messages"}
    ax.bar(_places(data, "interleaved"), messages, **bars)
    for i, name in enumerate(FAMILIES):
        ax.plot(_places(data, name), _apart(rates[name], published[name]), MARKERS[i], color=CURVES[i], ms=5)
    title = (
        "Simulated minus published: 0, but for interleaved, whose published step waits for K messages fewer"
    )
    _finish(ax, "difference (0.0001)", title)
    ax.set_ylim(-3, None)


def _places(data: dict, name: str) -> list[float]:
    return [at + ASIDE[name] for at in range(len(data["settings"]))]


def _apart(rates: list[float], others: list[float]) -> list[int]:
    return [round((rate - other) * 10**DIGITS) for rate, other in zip(rates, others, strict=True)]


def _finish(ax: Axes, label: str, title: str) -> None:
    ax.set_ylabel(label, fontsize=LABEL_SIZE)
    ax.set_title(title, loc="left", fontsize=TITLE_SIZE)
    finish(ax)
    ax.grid(axis="x", visible=False)
    legend_outside(ax)
