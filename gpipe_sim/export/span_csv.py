"""The spans of a timeline as a table, for a spreadsheet or pandas."""

from gpipe_sim.core.timeline import Timeline, of_timeline

HEADER = "stage,kind,microbatch,device,start,end,pair"


@of_timeline
def to_csv(timeline: Timeline) -> str:
    """The spans as CSV, device after device, each in the order of its row.

    The header is ``stage,kind,microbatch,device,start,end,pair``. An overlapped pair takes two lines with the
    same times, a line for each half, and ``pair`` names the other half, such as ``3B1``; it is empty for all
    else. So the lines with an empty ``pair``, and one of each two others, add up to the busy time.

    Numbers are exact: whole ones in full, floats in as many digits as they need, fractions as ``1/3``.
    Messages and collectives are not in it; ``to_json`` has everything. TypeError for anything but a timeline.
    """
    lines = [HEADER]
    for span in (span for row in timeline.rows for span in row):
        for part in span.action.parts:
            pair = "".join(str(other) for other in span.action.parts if other != part)
            lines.append(",".join(map(str, (*part, span.device, span.start, span.end, pair))))
    return "\n".join(lines) + "\n"
