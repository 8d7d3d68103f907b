"""Where formulas hold: each argument is read once, by its annotation, before a formula sees it."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from numbers import Real

from gpipe_sim.errors import duration, whole


def formula(function: Callable) -> Callable:
    """A formula whose sizes are whole numbers of at least 1, and whose times are finite and not negative.

    ``device`` counts from 0 to K-1. TypeError or ValueError, by the name of the argument, for anything else.
    """
    parameters, owner = signature(function), function.__name__

    @wraps(function)
    def checked(*args, **kwargs):
        given = parameters.bind(*args, **kwargs)
        read = given.arguments
        for name, value in list(read.items()):
            kind = parameters.parameters[name].annotation
            if name == "device":
                read[name] = whole(owner, name, value, 0, read["devices"] - 1)
            elif kind is int:
                read[name] = whole(owner, name, value)
            elif kind is Real:
                read[name] = duration(owner, name, value)
        return function(*given.args, **given.kwargs)

    return checked
