"""The answers beside the textbook are the library's too; all of them are short, and one program."""

import inspect

import numpy as np

import gpipe_sim as gp
from gpipe_sim.course import answers, mine


def test_attention_is_the_librarys():
    rng = np.random.default_rng(0)
    layer = gp.transformers.Attention(12, 3, rng=rng)
    _, saved = layer.forward(rng.normal(size=(2, 5, 12)), gp.core.Context())
    _, qkv, (shares, *_), mixed = saved
    mix, found = answers.attention(*np.split(qkv, 3, axis=2), heads=3)
    assert abs(found - shares).max() < 1e-12 and abs(mix - mixed.reshape(mix.shape)).max() < 1e-12


def test_columns_then_rows_are_the_librarys():
    rng = np.random.default_rng(0)
    layers, (x, dy) = gp.mlp([8, 32, 8]), rng.normal(size=(2, 5, 8))
    parts = answers.cut_matrices(layers[0].parameters["W"], layers[2].parameters["W"], 4)
    cut = gp.replicas.TensorParallel(layers, 4)
    assert abs(sum(answers.partial_output(x, *pair) for pair in parts) - cut.step(x, dy).output).max() < 1e-12
    for pair, device in zip(parts, cut.parts, strict=True):
        assert all(map(np.array_equal, pair, (device.parameters[0, "W"], device.parameters[2, "W"])))


FUNCTIONS = [each for each in vars(answers).values() if inspect.isfunction(each)]


def test_each_piece_is_under_20_lines():
    assert max(len(inspect.getsource(each).splitlines()) for each in FUNCTIONS) < 20


def test_the_pipeline_without_a_student_is_the_answers_as_one_program():
    """So a student's needs are read by the clock, wherever that stands."""
    names = mine.pipeline()
    assert all(names[each.__name__].__globals__ is names for each in FUNCTIONS)
