"""Where formulas hold: each argument is read once, by its annotation, before a formula sees it."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from numbers import Real

from gpipe_sim.errors import duration, whole


def formula(function: Callable) -> Callable:
    """A formula whose sizes are Python's whole numbers of at least 1, and whose times are finite and not negative.

    ``device`` counts from 0 to K-1. TypeError or ValueError, by the name of the argument, for anything else.
    """
    parameters = signature(function)

    @wraps(function)
    def checked(*args, **kwargs):
        given = parameters.bind(*args, **kwargs)
        for name, value in given.arguments.items():
            kind = parameters.parameters[name].annotation
            if name == "device":
                given.arguments[name] = whole(
                    function.__name__, name, value, 0, given.arguments["devices"] - 1
                )
            elif kind is int:
                given.arguments[name] = whole(function.__name__, name, value)
            elif kind is Real:
                given.arguments[name] = duration(function.__name__, name, value)
        return function(*given.args, **given.kwargs)

    return checked
