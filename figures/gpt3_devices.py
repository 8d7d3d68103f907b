"""GPT-3 on paper, on eight devices: the bytes of each at its fullest moment, under three schedules.

Each microbatch is one text of 2,048 places. Numbers take 2 bytes, and mixed-precision Adam keeps 12 more for
each weight. Every device has 12 of the 96 blocks; embedding and head come on top where they are.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.core.memory import GRADIENTS, PARAMETERS, SAVED, STATE, MemoryTrace
from gpipe_sim.drawing.palette import INK, MEMORY, PAPER
from gpipe_sim.drawing.plots.gantt import HATCH
from gpipe_sim.drawing.plots.style import LABEL_SIZE, finish

DEVICES, MICROBATCHES, PLACES, ENDS = 8, 16, 2_048, 2  #: layers before the blocks, and as many behind them
SCHEDULES = {
    "1F1B": gp.OneFOneB(DEVICES, MICROBATCHES),
    "interleaved, V = 2": gp.Interleaved1F1B(DEVICES, MICROBATCHES, stages_per_device=2),
    "ZB-V": gp.ZBV(DEVICES, MICROBATCHES),
}
BESIDE = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "annotation_clip": False}
PARTS = {
    "weights": PARAMETERS,
    "gradients": GRADIENTS,
    "optimizer": STATE,
    "activations": SAVED,
}  #: and colours
ROOM = 80 * 10**9  #: bytes of a large device
GB = 10**9


def data() -> dict:
    """Of each schedule's devices the bytes of each of ``PARTS``, when all of them together are at their most.

    What else there is while an action runs counts as activations: they are made of the same arrays.
    """
    return {
        "devices": DEVICES,
        "microbatches": MICROBATCHES,
        "order": list(SCHEDULES),
        "parts": list(PARTS),
        "bytes": {name: list(map(_parts, predicted(schedule))) for name, schedule in SCHEDULES.items()},
        "room": ROOM,
    }


def predicted(schedule: gp.core.Schedule) -> tuple[MemoryTrace, ...]:
    layers = gp.gpt3_175b()
    balance = [(len(layers) - 2 * ENDS) // schedule.stages] * schedule.stages
    balance[0] += ENDS
    balance[-1] += ENDS
    texts = gp.MetaArray((MICROBATCHES, PLACES), int)
    adam = gp.MixedPrecision(gp.Adam())
    stages = gp.split(layers, balance=balance)
    return gp.predict_memory(schedule, gp.profile(stages, (texts, texts), gp.cross_entropy, optimizer=adam))


def _parts(trace: MemoryTrace) -> list[int]:
    """By then each weight has its gradient, on every device."""
    kept = [trace.peak(category) for category in (PARAMETERS, GRADIENTS, STATE)]
    return [*kept, trace.peak_inside.bytes - sum(kept)]


def draw(data: dict) -> Figure:
    figure, ax = page(4.6)
    groups = {name: (data["devices"] + 1) * i for i, name in enumerate(data["order"])}
    for name, left in groups.items():
        _draw_group(ax, left, name, data["bytes"][name])
    for width, colour, style in ((3, PAPER, "-"), (1.1, INK, (0, (4, 3)))):
        ax.axhline(data["room"] / GB, color=colour, lw=width, ls=style)
    _style(ax, data, groups)
    first, *_, last = map(sum, data["bytes"]["1F1B"])
    both_ends, other, *_ = map(sum, data["bytes"]["ZB-V"])
    words = f"1F1B: {_gb(first)} GB on device 0 and {_gb(last)} on the last; "
    words += f"ZB-V: {_gb(both_ends - other)} GB more where both ends are"
    note = f"GPT-3, {data['microbatches']} microbatches of one text; each device at its fullest; "
    claim(ax, words, note + f"dashed: {_gb(data['room'])} GB")
    return figure


def _draw_group(ax: Axes, left: int, name: str, devices: list[list[int]]) -> None:
    """A bar for each device, and the bytes of the first and the last above theirs."""
    for x, parts in enumerate(devices, start=left):
        below = 0
        for category, part in zip(PARTS.values(), parts, strict=True):
            ax.bar(x, part / GB, bottom=below / GB, width=0.84, **_look(category))
            below += part
    for x, parts in ((left, devices[0]), (left + len(devices) - 1, devices[-1])):
        ax.annotate(_gb(sum(parts)), (x, sum(parts) / GB), (0, 3), ha="center", **BESIDE)
    ax.annotate(name, (left + (len(devices) - 1) / 2, 0), (0, -30), ha="center", va="baseline", **BESIDE)


def _style(ax: Axes, data: dict, groups: dict[str, int]) -> None:
    most = max(sum(parts) for devices in data["bytes"].values() for parts in devices)
    ax.set_ylim(0, 1.25 * most / GB)
    places = [(left + k, str(k)) for left in groups.values() for k in range(data["devices"])]
    ax.set_xticks(*zip(*places, strict=True))
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("held (GB)", fontsize=LABEL_SIZE)
    finish(ax)
    ax.grid(axis="x", visible=False)
    handles = [Patch(label=part, **_look(PARTS[part])) for part in reversed(data["parts"])]
    ax.legend(
        handles=handles, frameon=False, fontsize=LABEL_SIZE, handlelength=1.2, ncols=4, loc="upper right"
    )


def _look(category: str) -> dict:
    """As in the lessons' charts: a colour, and a pattern in white."""
    look = MEMORY[category]
    return {"facecolor": look.colour, "edgecolor": PAPER, "linewidth": 0, "hatch": HATCH.get(look.pattern)}


def _gb(size: int) -> str:
    return f"{size / GB:.0f}"
