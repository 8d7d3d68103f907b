"""What the page knows from the library, as JSON: rules, words and colours, each of which has one home."""

import re
from dataclasses import fields
from inspect import cleandoc
from typing import Any

from gpipe_sim.core.actions import MEANINGS, Kind
from gpipe_sim.core.gpipe import DRAINS
from gpipe_sim.core.memory import CATEGORIES
from gpipe_sim.core.problems import REASONS
from gpipe_sim.core.remat import MODES
from gpipe_sim.core.rules import HOLDS, HOLDS_RECOMPUTED, NEEDS, in_flight
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.drawing import geometry, options, palette, panel
from gpipe_sim.errors import MOST
from gpipe_sim.families import SCHEDULES, WITHOUT_FLUSH
from gpipe_sim.links.collective import ALL_REDUCE, NORM
from gpipe_sim.why.critical_path import ASSUMED

FAMILIES = (*SCHEDULES, *WITHOUT_FLUSH)

SENTENCE = re.compile(r"^(.*?(?<!\.)\.) .*")  #: the first of a text, and more: "..." ends none


def tables() -> dict[str, Any]:
    """Needs and holdings by kind, the reasons for needs, words, colours by day and by night, and families."""
    return {
        "needs": {kind: [[source, step] for source, step in NEEDS[kind]] for kind in Kind},
        "holds": {kind: HOLDS[kind] for kind in Kind} | {"recomputed": HOLDS_RECOMPUTED},
        "in_flight": {kind: in_flight(kind) for kind in Kind},
        "categories": list(CATEGORIES),
        "assumed": ASSUMED,
        "rings": [ALL_REDUCE, NORM],
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
        "over": [palette.OVER, palette.DARK[palette.OVER]],
        "later": palette.LATER,
        "later_stage": panel.LATER_STAGE,
        "faded": palette.FADED,
        "long_wait": geometry.LONG,
        "most_arrows": options.MOST_ARROWS,
        "about_families": {family.__name__: about(family) for family in FAMILIES},
        "drains": DRAINS,
        "modes": MODES,
        "most": MOST,
        "most_written": f"{MOST:,}",
    }


def about(family: type[Schedule]) -> dict[str, Any]:
    """A family: its name, first sentence, own options with their defaults, and whether it flushes."""
    plain = {each.name for each in fields(Schedule)}
    paragraph = cleandoc(family.__doc__ or "").partition("\n\n")[0].replace("``", '"')
    return {
        "name": family.name if isinstance(family.name, str) else family.__name__,
        "says": SENTENCE.sub(r"\1", " ".join(paragraph.split())),
        "options": {each.name: each.default for each in fields(family) if each.name not in plain},
        "stages_per_device": family.stages_per_device,
        "flush": family in SCHEDULES,
    }
