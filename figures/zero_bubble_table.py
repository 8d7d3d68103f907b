"""A published table, simulated: the zero-bubble paper's bubble rates, from the times that it measured."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from figures._page import claim, page
from gpipe_sim import ZBH1, Interleaved1F1B, OneFOneB, simulate, span_bubble
from gpipe_sim.core import Schedule, Timeline, useful_time
from gpipe_sim.drawing.palette import FAINT, INK
from gpipe_sim.drawing.plots.style import LABEL_SIZE, TITLE_SIZE, finish
from gpipe_sim.families import ZBH2
from gpipe_sim.papers.published import ZERO_BUBBLE, ZeroBubbleRun

FAMILIES = {"1F1B": OneFOneB, "interleaved": Interleaved1F1B, "ZB-H1": ZBH1, "ZB-H2": ZBH2}
DIGITS = 4  #: after the point, as the paper prints
RING = {"ms": 9, "mfc": "none", "mec": FAINT, "lw": 0}


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
    """A line for each printed rate, in a group for each schedule."""
    figure, ax = page(5.6)
    lines = [(name, i) for name in FAMILIES for i in range(len(data["settings"]))]
    places = [line + group for group in range(len(FAMILIES)) for line in _lines(data, group)]
    for y, (name, i) in zip(places, lines, strict=True):
        ax.plot(data["published"][name][i], y, "o", **RING)
        ax.plot(data["simulated"][name][i], y, "o", color=INK, ms=4)
    ax.plot([], [], "o", **RING, label="printed in the paper")
    ax.plot([], [], "o", color=INK, ms=4, lw=0, label="simulated here, from the times in the paper")
    same, all_of_them = _agreeing(data)
    words = (
        f"{same} of {all_of_them} bubble rates of the zero-bubble paper come out to the last printed digit"
    )
    apart = _apart(data["simulated"]["interleaved"], data["published"]["interleaved"])
    least, most = (100 * of(apart) / 10**DIGITS for of in (min, max))
    note = f"interleaved: {least:.2f} to {most:.2f} percentage points more: here every message is waited for"
    claim(ax, words, note)
    _style(ax, data, places)
    return figure


def _lines(data: dict, group: int) -> range:
    """The lines of a group, counted from the top; where they stand, each group is one further down."""
    each = len(data["settings"])
    return range(group * each, (group + 1) * each)


def _agreeing(data: dict) -> tuple[int, int]:
    """How many simulated rates equal the printed ones, and how many there are."""
    pairs = [
        (a, b)
        for name in FAMILIES
        for a, b in zip(data["simulated"][name], data["published"][name], strict=True)
    ]
    return sum(a == b for a, b in pairs), len(pairs)


def _style(ax: Axes, data: dict, places: list[int]) -> None:
    """Each line has its setting on the left; each group its schedule on the right."""
    settings = [f"{model}, K = {k}, M = {m}" for model, k, m in data["settings"]]
    ax.set_yticks(places, settings * len(FAMILIES))
    most = max(max(rates) for rates in data["simulated"].values())
    ax.set(xlim=(0, 1.2 * most), ylim=(places[-1] + 1, -1))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlabel("bubble rate (span bubble)", fontsize=LABEL_SIZE)
    each = len(settings)
    for i, name in enumerate(FAMILIES):
        middle = sum(places[i * each : (i + 1) * each]) / each
        right = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center"}
        ax.annotate(name, (0.99, middle), fontsize=TITLE_SIZE, weight="bold", **right)
    finish(ax)
    ax.tick_params(axis="y", length=0)
    ax.legend(frameon=False, fontsize=LABEL_SIZE, loc="lower center", bbox_to_anchor=(0.62, 0.02))


def _apart(rates: list[float], others: list[float]) -> list[int]:
    return [round((rate - other) * 10**DIGITS) for rate, other in zip(rates, others, strict=True)]
