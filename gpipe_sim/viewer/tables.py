"""What the page knows from the library, as JSON: rules, words and colours, each of which has one home."""

from typing import Any

from gpipe_sim.core.actions import MEANINGS, Kind
from gpipe_sim.core.memory import CATEGORIES
from gpipe_sim.core.problems import REASONS
from gpipe_sim.core.rules import HOLDS, HOLDS_RECOMPUTED, NEEDS
from gpipe_sim.drawing import palette
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.why.critical_path import ASSUMED


def tables() -> dict[str, Any]:
    """Needs and holdings by kind, the reasons for needs, words, colours by day and by night, and families."""
    return {
        "needs": {kind: [[source, step] for source, step in NEEDS[kind]] for kind in Kind},
        "holds": {kind: HOLDS[kind] for kind in Kind} | {"recomputed": HOLDS_RECOMPUTED},
        "categories": list(CATEGORIES),
        "assumed": ASSUMED,
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
        "families": [family.__name__ for family in (*SCHEDULES, *WITHOUT_FLUSH)],
    }
