"""Central differences, and how far two gradients are apart."""

import numpy as np


def numeric_gradient(value, array: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """The gradient of ``value()`` with respect to an array that it reads, by central differences."""
    gradient = np.empty_like(array)
    for at in np.ndindex(array.shape):
        kept = array[at]
        array[at] = kept + h
        above = value()
        array[at] = kept - h
        below = value()
        array[at] = kept
        gradient[at] = (above - below) / (2 * h)
    return gradient


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest entry expected, which must not be 0."""
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 0
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def furthest_apart(found: dict, expected: dict) -> float:
    """The same over every parameter of ``{(layer, name): array}``, each measured by its own largest entry."""
    assert found.keys() == expected.keys()
    return max(apart(found[key], expected[key]) for key in expected)
