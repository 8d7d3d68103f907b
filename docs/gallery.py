"""The gallery: every family drawn, with its numbers at equal layers, computed when the site is built."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import gpipe_sim as gp
from docs.api import public
from gpipe_sim.drawing.compare import HEADS, UNIT_IN_FLIGHT, Compared, Comparison

DEVICES, MICROBATCHES = 4, 10  #: of the charts; lessons ask about other sizes
SIZES = (4, 10), (6, 24)  #: of the tables; lesson 01 asks about eight devices
GROUPS = {
    "With a flush": gp.SCHEDULES,
    "Without a flush": gp.families.WITHOUT_FLUSH,
}


def table(found: Comparison) -> str:
    """In Markdown; each name leads to its chart."""
    head = "| family " + " | ".join(HEADS) + " |"
    lines = [head, "|---" + "|--:" * (len(HEADS) - 1) + "|"]
    for row in found:
        name, *numbers = row.cells
        lines.append("| " + " | ".join([f"[{name}](#{anchor(row)})", *numbers]) + " |")
    return "\n".join(lines)


def anchor(row: Compared) -> str:
    return "family-" + type(row.schedule).__name__.lower()


def fenced(words: str) -> str:
    """A docstring in Markdown, in which a session of ``>>>`` would be quotations."""
    blocks = words.split("\n\n")
    return "\n\n".join(f"```pycon\n{each}\n```" if each.startswith(">>>") else each for each in blocks)


def section(row: Compared, folder: Path) -> str:
    """A family: what its docstring says, its chart, its numbers."""
    family = type(row.schedule)
    chart = gp.draw(row.timeline)
    chart.save(folder / f"{family.__name__}.svg")
    name = next(name for name, thing in public().items() if thing is family)
    _, time, bubble, held, copies, messages = row.cells
    numbers = f"Time {time}, bubble {bubble}, at most {held} in flight, {messages} messages"
    several = f", {copies} copies of the parameters" if row.copies > 1 else ""
    return f"""({anchor(row)})=
### {row.schedule.name}

{fenced(inspect.getdoc(family))}

![{chart.says}]({family.__name__}.svg)

{numbers}{several}. In Python: {{py:class}}`gp.{name.removeprefix("gpipe_sim.")} <{name}>`.
"""


def page(folder: Path) -> Iterator[str]:
    yield (folder / "index.md").read_text(encoding="utf-8")
    for title, families in GROUPS.items():
        yield f"## {title}"
        for devices, microbatches in SIZES:
            yield f"{devices} devices, {microbatches} microbatches:"
            yield table(gp.compare(families, devices, microbatches))
        yield f"{UNIT_IN_FLIGHT.capitalize()}."
        yield from (section(row, folder) for row in gp.compare(families, DEVICES, MICROBATCHES))


def write(folder: Path) -> None:
    """Add all families to the page that introduces them."""
    text = "\n\n".join(page(folder))
    (folder / "index.md").write_text(text, encoding="utf-8")
