"""Lesson 09: interleaving."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from numbers import Real as AnyReal

from gpipe_sim.core.bubbles import peak_in_flight
from gpipe_sim.core.costs import Costs
from gpipe_sim.core.layers import ReLU
from gpipe_sim.core.simulate import simulate
from gpipe_sim.core.split import split
from gpipe_sim.course.build import build, exercise
from gpipe_sim.course.called import called
from gpipe_sim.course.own_rows import drawn
from gpipe_sim.course.reply import Reply, almost, correct, is_number, keep_working, listed
from gpipe_sim.course.rows import (
    Order,
    Rows,
    Step,
    as_schedule,
    first_other,
    in_a_row,
    rows_from,
    rows_of,
    spelled,
    who_is_stuck,
)
from gpipe_sim.errors import Real
from gpipe_sim.families import Interleaved1F1B, OneFOneB

#: devices, microbatches, stages per device
HIDDEN_ROWS = ((2, 4, 2), (3, 9, 2), (4, 8, 3), (1, 3, 2), (5, 5, 2), (3, 6, 1), (4, 20, 2))

#: layers, devices, stages per device, and the device that is asked about
HIDDEN_CUTS = ((24, 3, 2, 1), (40, 5, 4, 0), (12, 4, 1, 3), (16, 4, 4, 2))
#: devices, microbatches, and how long a message is on its way, in forwards of a whole device
HIDDEN_LINKS = (
    (5, 10, Fraction(0)),
    (3, 6, Fraction(1, 20)),
    (3, 6, Fraction(1, 4)),
    (2, 8, Fraction(3, 4)),
    (8, 16, Fraction(1, 10)),
    (8, 16, Fraction(1, 4)),
    (4, 16, Fraction(2)),
    (2, 2, Fraction(1, 10)),
    (4, 4, Fraction(11, 20)),
    (8, 48, Fraction(11, 20)),
    (6, 12, Fraction(3, 20)),
    (2, 6, Fraction(1, 4)),
)
CHOICES = (1, 2, 4)


@build("interleaved_rows")
def interleaved_rows(answer: Callable) -> Reply:
    """Check ``answer(K, M, V)``: the rows of interleaved 1F1B, where K divides M."""
    tried: list[Rows] = []
    for K, M, V in HIDDEN_ROWS:
        wanted, where = rows_of(Interleaved1F1B(K, M, V)), f"with K = {K}, M = {M}, V = {V}"
        tried.append(rows_from(answer, K, M, V, wanted=wanted, where=where))
        if tried[-1] != wanted:
            return _what_is_wrong_with_rows(tried[-1], wanted, K, V, where)
    says = correct(f"the library's rows, at {len(HIDDEN_ROWS)} sizes that are not on this page")
    return drawn(says, tried[0])


def _what_is_wrong_with_rows(rows: Rows, wanted: Order, K: int, V: int, where: str) -> Reply:
    for kind, question in (("F", _of_forwards), ("B", _of_backwards)):
        for k, (row, right) in enumerate(zip(rows, wanted, strict=True)):
            yours, its = ([action for action in each if action[1] == kind] for each in (row, right))
            if yours != its:
                said = f"{where}: device {k} does {in_a_row(yours, most=K + 2, end='.')}"
                at = k, row.index(yours[first_other(yours, its)])
                return drawn(keep_working(f"{said} {question(yours, its, K)}"), rows, at)
    leads = [*map(_lead, rows)]
    for k, (lead, due) in enumerate(zip(leads, map(_lead, wanted), strict=True)):
        if lead != due:
            reply = _what_is_wrong_with_warmup(rows, leads, k, K, V, where)
            return drawn(reply, rows, (k, min(lead, due)))
    k = first_other(rows, wanted)
    row, right = rows[k], wanted[k]
    turn = first_other(row, right)
    before = f"after {spelled(row[turn - 1])} comes {spelled(row[turn])}"
    asks = f"{where}, device {k}: {before}. Do forwards and backwards take turns there?"
    return drawn(keep_working(asks), rows, (k, turn))


def _lead(row: Sequence[Step]) -> int:
    """How many forwards come before the first backward."""
    return [kind for _, kind, _ in row].index("B")


def _of_forwards(yours: list, its: list, K: int) -> str:
    differs = first_other(yours, its)
    if differs < K:
        return "Which microbatches are there at its first stage before the first one has come round again?"
    if yours[differs][0] == yours[differs - 1][0] and differs % K == 0:
        return f"After a group of {K} microbatches, which one is back, and at which stage?"
    return "Through which of its stages does a group run, one after the other, and when does the next begin?"


def _of_backwards(yours: list, its: list, K: int) -> str:
    if yours[0][0] != its[0][0]:
        return "At which of its stages does a gradient arrive first?"
    if yours[0][2] != its[0][2]:
        return "Which microbatch's gradient is there first?"
    return "In which order do the gradients of a group come, and when do those of the next group?"


def _what_is_wrong_with_warmup(rows: Rows, leads: list[int], k: int, K: int, V: int, where: str) -> Reply:
    schedule = as_schedule(rows, Interleaved1F1B(K, K, V).placement)
    said = f"{where}: device {k} does {leads[k]} forwards before its first backward"
    if stuck := who_is_stuck(schedule):
        return keep_working(f"{said}, and the step never ends: {stuck}. What is too early?")
    most = len(rows[0]) // 2
    if leads == [min((K - k - 1) + (V - 1) * K + 1, most) for k in range(K)]:
        return almost(f"{said}. It goes on with forwards while a gradient travels back. For how many turns?")
    if leads == [min(2 * (K - k - 1) + (V - 1) * K + 2, most) for k in range(K)]:
        return almost(f"{said}. The warm-up and one forward more? Which of them belongs to the first pair?")
    long, held = simulate(schedule, Costs().per_stage(V)).makespan, peak_in_flight(schedule)
    most_held = f"the step takes {float(long):.4g} and the devices hold {listed(held)}"
    return keep_working(f"{said}; {most_held}. How many turns pass until its first gradient can be there?")


@exercise("write a function of (layers, devices, stages_per_device, device) and pass it in")
def held_layers(answer: Callable | None) -> Reply:
    """Check ``answer(layers, devices, stages_per_device, device)``: which layers the device holds."""
    for case in HIDDEN_CUTS:
        got = called(answer, *case)
        if _numbers(got) != _held(*case):
            return _what_is_wrong_with_layers(*case, got)
    return correct("the same layers as the partitions of the schedule's placement, on every size tried")


@exercise("write a function of (devices, microbatches, c) and pass it in")
def best_stages_per_device(answer: Callable | None) -> Reply:
    """Check ``answer(devices, microbatches, c)``: which of 1, 2 and 4 stages gives the shortest step."""
    given = []
    for case in HIDDEN_LINKS:
        got = called(answer, *case)
        if not is_number(got) or got not in CHOICES:
            said = f"{float(got):.4g}" if is_number(got) else repr(got)
            return keep_working(f"for {_link(*case)} you say {said}. Which of V = 1, 2 and 4 is that?")
        given.append(int(got))
    for case, V, best in zip(HIDDEN_LINKS, given, _shortest(_length), strict=True):
        if best != V:
            return _what_is_wrong_with_choice(given, case, V)
    return correct("no other of the three gives a shorter step, on any size tried")


def _held(layers: int, devices: int, stages_per_device: int, device: int) -> list[int]:
    schedule = Interleaved1F1B(devices, devices, stages_per_device=stages_per_device)
    partitions = split([ReLU() for _ in range(layers)], stages=schedule.stages)
    return [number for stage in schedule.placement[device] for number in partitions[stage].numbers]


def _numbers(got: object) -> list | None:
    """The answer as a sorted list of numbers; None if it is no list of numbers."""
    if not isinstance(got, Iterable) or isinstance(got, str) or getattr(got, "shape", None) == ():
        return None
    held = list(got)
    return sorted(held) if all(isinstance(n, AnyReal) for n in held) else None


def _what_is_wrong_with_layers(layers: int, devices: int, stages: int, device: int, got: object) -> Reply:
    model = f"of {layers} layers on {devices} devices with {stages} stages each"
    where = f"{model}, device {device}: you say {got!r}"
    numbers, wanted = _numbers(got), _held(layers, devices, stages, device)
    each = layers // devices
    if numbers is None:
        return keep_working(f"{where}; it should be a list of layer numbers, and of nothing else")
    if numbers == [n + 1 for n in wanted]:
        return almost(f"{where}. Which number has the first layer of the model here?")
    if numbers == list(range(device * each, (device + 1) * each)):
        asks = f"How many runs does a device with {stages} stages hold?"
        return keep_working(f"{where}, one run of layers. {asks}")
    if numbers == list(range(device, layers, devices)):
        return almost(f"{where}: you deal out single layers. How many layers has one stage?")
    if len(numbers) != each:
        return keep_working(f"{where}: {len(numbers)} in all. How many layers are there for each device?")
    return keep_working(f"{where}. Into how many stages is the model cut, and which of them are here?")


def _length(devices: int, microbatches: int, comm: Fraction, V: int) -> Real:
    """The length of a step if a device's V equal stages together take 1 forward and 2 backward."""
    schedule = Interleaved1F1B(devices, microbatches, stages_per_device=V)
    return simulate(schedule, Costs(comm=comm).per_stage(V)).makespan


def _what_is_wrong_with_choice(given: list[int], case: tuple[int, int, Fraction], V: int) -> Reply:
    where = f"for {_link(*case)} you say V = {V}, which takes {float(_length(*case, V)):.4g}"
    if set(given) == {min(CHOICES)}:  # as if each of V stages took as long as a whole device's work
        return almost(f"{where}. How long is one of V stages that share a device?")
    if given == _shortest(lambda K, M, comm, V: _length(K, M, comm / V, V)):
        return almost(f"{where}. Does a message carry less if the stage that sends it is thinner?")
    if given == _shortest(_one_f_one_b_length):
        return almost(f"{where}. Is 1F1B what `Interleaved1F1B` does with V = 1?")
    if set(given) == {max(CHOICES)}:
        said = f"{where}. You always take the thinnest stages"
        return keep_working(f"{said}. How many boundaries must a microbatch cross?")
    return keep_working(f"{where}; another of the three is shorter. What did you compare?")


def _one_f_one_b_length(K: int, M: int, comm: Fraction, V: int) -> Real:
    """As if the interleaved order with V = 1 were 1F1B."""
    return simulate(OneFOneB(K, M), Costs(comm=comm)).makespan if V == 1 else _length(K, M, comm, V)


def _shortest(length: Callable[[int, int, Fraction, int], Real]) -> list[int]:
    """The answers of someone who takes a step to be this long."""
    return [min(CHOICES, key=lambda V: length(K, M, comm, V)) for K, M, comm in HIDDEN_LINKS]


def _link(devices: int, microbatches: int, comm: Fraction) -> str:
    return f"K={devices}, M={microbatches} and messages that take {comm}"
