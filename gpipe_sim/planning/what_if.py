"""What would help a run? Each change that one could make, simulated with what the run cost; the best first.

A change is a schedule and costs, so it can be checked: simulate them. What nobody measured is said beside it.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from gpipe_sim.balance.costs_of_stages import layers_listed
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.schedule import Schedule, require_schedule
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.timeline import Timeline, number
from gpipe_sim.errors import Real, duration, got, listed, require
from gpipe_sim.families import SCHEDULES
from gpipe_sim.memory.profile import Profile
from gpipe_sim.planning.changes import CHANGES, copies
from gpipe_sim.planning.choices import Choice, WhatIf
from gpipe_sim.planning.known_run import SAME, KnownRun
from gpipe_sim.planning.layers_known import OWNER
from gpipe_sim.why.fit_costs import fit_costs

LEAST = 0.005  #: what saves a smaller share is not offered
NO_CUT = "no cut: say how many layers each stage has, such as layers=[4, 4, 4, 4]"


def what_if(
    run: Timeline | Costs,
    schedule: Schedule | None = None,
    *,
    layers: Sequence[int] | Costs | None = None,
    profile: Profile | None = None,
    limit: Real | None = None,
    schedules: Iterable[type[Schedule]] | None = None,
) -> WhatIf:
    """What a step would take after each change that one could make, the shortest first.

    >>> slow = gp.simulate(gp.OneFOneB(4, 8), gp.Costs.from_forward([4, 4, 8, 4]))
    >>> print(gp.what_if(slow, layers=[4, 4, 4, 4], schedules=[gp.ZBH1]))
                        time   gain  in flight  code      sure   if
    as it is             220                 4           exact
    ZB-H1, cut 6 4 2 4   154  30.0%          6   yes  supposed  1 2
    cut 6 4 2 4          174  20.9%          6        supposed    1
    32 microbatches      199   9.5%          1        supposed    3
    ZB-H1                200   9.1%          4   yes  supposed    2
    16 microbatches      206   6.4%          2        supposed    3
    1  if layers of one stage cost the same
    2  if the two halves of a backward take as long as taken here: nobody measured them apart
    3  if a microbatch of half the size computes for half as long, and the batch can be cut so
    in flight: today's microbatches of a device's share of the layers, on the fullest device

    ``run`` is a timeline, measured or simulated, whose costs are fitted; or ``Costs`` with their
    ``schedule``. Offered are the best cut, the other schedules of the library, both together, more
    microbatches of the same batch, a slow link or device as fast as the others, and a heavy head cut in
    parts (a cut also moves layers away from it); each only where it saves and means something.

    - ``layers``: how many each stage has, or ``Costs`` of each layer, in any unit. Without them there is no
      cut to offer, and a stage that has to be cut is taken to be four equal parts. A stage is told to be slow
      for its layers, unless all of several stages on its device are.
    - ``profile``: of the model as it is cut now. It knows the layers too, and what each choice holds.
    - ``limit``: what a device may hold at most, in bytes, or in flight if there is no profile.
    - ``schedules``: families to compare with, such as those that you can run; ``[]`` for none. All of
      ``SCHEDULES`` that need one copy of the weights, unless given.

    Of ties, what needs no code comes first, and then what sends fewer messages. Noise and what an action
    takes however small it is are not in a fit: what has more and smaller actions gains a little less.

    Messages and overhead stay as they are whatever the cut. Times are in the unit of the run. TypeError or
    ValueError for what is no run, or for layers that do not fit it.
    """
    costs, schedule, timeline = _read_run(run, schedule)
    simulated = simulate(schedule, costs)  # which refuses what does not fit
    layers_listed(OWNER, costs)
    if profile is not None:
        require(OWNER, profile, Profile, "a profile, such as profile(partitions, batch, loss)")
    if limit is not None:
        limit = duration(OWNER, "limit, for each device,", limit)
    families = _read_families(schedules)
    return _sorted(KnownRun(schedule, costs, timeline, simulated, layers, profile, families), limit)


def _read_run(run: Timeline | Costs, schedule: Schedule | None) -> tuple[Costs, Schedule, Timeline | None]:
    such_as = "a timeline, or costs and their schedule, such as what_if(Costs(comm=1), OneFOneB(4, 8))"
    require(OWNER, run, Timeline | Costs, such_as)
    if isinstance(run, Costs):
        require_schedule(OWNER, schedule)
        return run, cast(Schedule, schedule), None
    if schedule is not None:
        raise TypeError(f"{OWNER} takes the schedule from the timeline; leave out schedule= {got(schedule)}")
    return fit_costs(run), run.schedule, run


def _read_families(given: Iterable[type[Schedule]] | None) -> tuple[type[Schedule], ...]:
    """Unless some are given, those that need one copy of the weights."""
    if given is None:
        return tuple(family for family in SCHEDULES if copies(family(4, 8)) == 1)
    such_as = "schedules= to list families of gp.SCHEDULES, such as [OneFOneB, Interleaved1F1B]"
    found = listed(OWNER, such_as, given)
    if any(require(OWNER, family, type, such_as) not in SCHEDULES for family in found):
        raise TypeError(f"{OWNER} needs {such_as} {got(given)}")
    return tuple(dict.fromkeys(found))


def _sorted(run: KnownRun, limit: Real | None) -> WhatIf:
    """The choices that are within the limit and save something, and notes on the others."""
    tried = [choice for change in CHANGES for choice in change(run)]
    over = [each for each in tried if limit is not None and each.peak > limit]
    fit = [each for each in tried if limit is None or each.peak <= limit]
    shorter = sorted((each for each in fit if each.gain >= LEAST), key=_place)
    left_out = {
        "over the limit": [each.name for each in over],
        "no gain": [each.name for each in fit if each.gain < LEAST],
    }
    notes = [f"{why}: {', '.join(names)}" for why, names in left_out.items() if names]
    notes += run.others[1] + [NO_CUT] * (not run.layers.said)
    if run.timeline is not None and abs(run.error) > SAME:
        took, fitted = run.timeline.makespan, run.simulated.makespan
        notes.insert(0, f"the run took {number(took)}; with what was fitted it takes {number(fitted)}")
    now = run.choice("as it is", run.schedule, run.costs)
    return WhatIf(now, tuple(shorter), tuple(notes), run.profile is not None)


def _place(choice: Choice) -> tuple[float, bool, int]:
    """Of ties, apart from rounding, what needs no code comes first, and then what sends fewer messages."""
    makespan = float(f"{float(choice.makespan):.9g}")
    return makespan, choice.code, int(choice.schedule.program.crosses.sum())
