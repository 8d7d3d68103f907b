"""Devices and links as a student would write them: a clock for each, and nothing else."""

from gpipe_sim.core import Schedule, needs


def linked(schedule: Schedule, costs, link, size=lambda _: 1, overlap: bool = True) -> tuple[dict, dict]:
    """({action: (start, end)}, {(action, target): (leaves, arrives)}); ``link(source, target)`` is a Link."""
    times, ends, messages, arrived = {}, {}, {}, {}
    queues = [list(row) for row in schedule.actions]
    before = {action: needs(action, schedule) for row in queues for action in row}
    at = {part: device for device, row in enumerate(queues) for action in row for part in action.parts}
    free, crossing = [0] * schedule.devices, {}
    wanted = {}  # by action, the devices that need it
    for device, row in enumerate(schedule.actions):
        for action in row:
            for need in before[action] if action.parts[0].kind != "U" else ():  # a sum is no message
                if at[need] != device:
                    wanted.setdefault(need, set()).add(device)
    moved = True
    while moved:
        moved = False
        for device, queue in enumerate(queues):
            while queue and all(need in ends for need in before[queue[0]]):
                action, start = queue.pop(0), free[device]
                received = 0
                for need in before[action]:
                    source = at[need]
                    here = source == device or action.parts[0].kind == "U"
                    start = max(start, ends[need] if here else arrived[need, device])
                    if not here and (need, device) in messages:
                        received += link(source, device).busy(size(need)) * (not overlap)
                        messages.pop((need, device))
                start += received
                end = start + costs.duration(action, device)
                times[action] = start, end
                ends |= dict.fromkeys(action.parts, end)
                free[device] = end
                for part in action.parts:
                    for target in sorted(wanted.get(part, ())):
                        way, busy = link(device, target), link(device, target).busy(size(part))
                        if overlap:
                            leaves = max(end, crossing.get((device, target), 0))
                            crossing[device, target] = leaves + busy
                        else:
                            leaves = free[device]
                            free[device] += busy
                        late = way.latency + costs.transfer(part, device, target)
                        arrived[part, target] = leaves + busy + late
                        messages[part, target] = leaves
                        times[part, target] = leaves, leaves + busy + late
                moved = True
    spans = {action: span for action, span in times.items() if hasattr(action, "parts")}
    return spans, {key: span for key, span in times.items() if key not in spans}
