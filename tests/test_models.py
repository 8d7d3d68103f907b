import numpy as np
import pytest

from gpipe_sim import mlp


def test_an_mlp_is_linear_layers_with_an_activation_between_them():
    assert str(mlp([64, 32, 32, 10])) == "[Linear(64, 32), ReLU(), Linear(32, 32), ReLU(), Linear(32, 10)]"
    assert str(mlp([2, 3])) == "[Linear(2, 3)]"


@pytest.mark.parametrize(("name", "layer"), [("relu", "ReLU()"), ("tanh", "Tanh()"), ("gelu", "GELU()")])
def test_the_activation_goes_by_name(name, layer):
    assert [repr(each) for each in mlp([2, 2, 2, 2], activation=name)[1::2]] == [layer, layer]


def test_the_seed_fixes_the_weights():
    def weights(seed):
        return np.concatenate(
            [p.ravel() for layer in mlp([4, 5, 3], seed=seed) for p in layer.parameters.values()]
        )

    assert (weights(3) == weights(3)).all()
    assert (weights(3) != weights(4)).any()


def test_no_two_layers_start_alike():
    first, second = mlp([8, 8, 8])[::2]
    assert (first.parameters["W"] != second.parameters["W"]).all()


@pytest.mark.parametrize("dtype", [np.float32, "float64"])
def test_weights_have_the_dtype_that_was_asked_for(dtype):
    dtypes = {p.dtype for layer in mlp([2, 2, 2], dtype=dtype) for p in layer.parameters.values()}
    assert dtypes == {np.dtype(dtype)}


# Bad input


@pytest.mark.parametrize("sizes", [[], [64]])
def test_fewer_than_two_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="at least two sizes, input and output") as error:
        mlp(sizes)
    assert f"(got {sizes})" in str(error.value)


@pytest.mark.parametrize(
    ("size", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), ("8", TypeError)]
)
def test_a_size_that_cannot_be_is_refused(size, error):
    with pytest.raises(error, match=r"mlp needs every size .* \(got ") as raised:
        mlp([4, size, 2])
    assert repr(size) in str(raised.value)


def test_an_unknown_activation_is_refused_with_the_ones_there_are():
    with pytest.raises(ValueError, match=r"one of \('relu', 'tanh', 'gelu'\) \(got 'sigmoid'\)"):
        mlp([2, 2], activation="sigmoid")


@pytest.mark.parametrize("dtype", [int, bool, complex])
def test_a_dtype_without_fractions_is_refused(dtype):
    with pytest.raises(ValueError, match=r"mlp needs a floating dtype \(got (int|bool|complex)"):
        mlp([2, 2], dtype=dtype)


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16"])
def test_who_asks_for_bfloat16_is_told_what_is_as_large(dtype):
    with pytest.raises(ValueError, match="NumPy has no bfloat16, and 'f2' is as large"):
        mlp([2, 2], dtype=dtype)
    with pytest.raises(ValueError, match=r"needs a floating dtype \(got 'x'\)$"):
        mlp([2, 2], dtype="x")
