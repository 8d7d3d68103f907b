"""What the page knows from the library: its rules, words and colours, as one table of JSON. Each has one home."""

from typing import Any

from gpipe_sim.core.actions import MEANINGS, Kind
from gpipe_sim.core.problems import REASONS
from gpipe_sim.core.rules import HOLDS, HOLDS_RECOMPUTED, NEEDS
from gpipe_sim.drawing import geometry, options, palette, panel
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH

OVER = ["#b3261e", "#ff8a80"]  #: bytes, or microbatches, above a limit: by day and by night


def tables() -> dict[str, Any]:
    """Needs and holdings by kind, the reasons for needs, words, colours by day and by night, and families."""
    return {
        "needs": {kind: [[source, step] for source, step in NEEDS[kind]] for kind in Kind},
        "holds": {kind: HOLDS[kind] for kind in Kind} | {"recomputed": HOLDS_RECOMPUTED},
        "reasons": {f"{kind}{need}": reason for (kind, need), reason in REASONS.items()},
        "meanings": dict(MEANINGS),
        "kinds": {kind: look._asdict() for kind, look in palette.KINDS.items()},
        "memory": {name: look._asdict() for name, look in palette.MEMORY.items()},
        "colours": {
            name: [getattr(palette, name.upper()), palette.DARK.get(getattr(palette, name.upper()))]
            for name in ("paper", "ink", "faint", "lane", "grid", "paler")
        },
        "dark": palette.DARK,
        "collective": palette.COLLECTIVE.colour,
        "over": OVER,
        "later": palette.LATER,
        "later_stage": panel.LATER_STAGE,
        "faded": palette.FADED,
        "long_wait": geometry.LONG,
        "most_arrows": options.MOST_ARROWS,
        "families": [family.__name__ for family in (*SCHEDULES, *WITHOUT_FLUSH)],
    }
