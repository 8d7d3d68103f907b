"""The simulator that a student writes: needs, a clock per device, and nothing else."""

from gpipe_sim.core import Schedule, needs


def simulated(schedule: Schedule, costs) -> dict:
    """{action: (start, end)}, or what was reached of it where the devices deadlock."""
    times, ends = {}, {}
    queues = [list(row) for row in schedule.actions]
    clocks = [0] * schedule.devices
    moved = True
    while moved:
        moved = False
        for device, queue in enumerate(queues):
            while queue and all(need in ends for need in needs(queue[0], schedule)):
                action, start = queue.pop(0), clocks[device]
                for need in needs(action, schedule):
                    source = schedule.device_of(need)
                    here = source == device or action.parts[0].kind == "U"  # a sum is no message
                    late = 0 if here else costs.transfer(need, source, device)
                    start = max(start, ends[need] + late)
                clocks[device] = start + costs.duration(action, device)
                times[action] = start, clocks[device]
                ends |= dict.fromkeys(action.parts, clocks[device])
                moved = True
    return times
