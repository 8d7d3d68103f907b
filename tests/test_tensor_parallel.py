"""Layers cut over devices give what the whole layers give, and send what Megatron's formula says."""

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.core import Context, Layer, Linear, Partition
from gpipe_sim.replicas import TensorParallel
from gpipe_sim.transformers import Attention, SwiGLU

f = gp.formulas
B, S, H, A = 3, 8, 16, 4
DEVICES = pytest.mark.parametrize("t", [1, 2, 4])


def drawn(layers: list[Layer]) -> list[Layer]:
    """The same layers with biases that are not 0, so that one that is counted twice shows."""
    rng = np.random.default_rng(1)
    for layer in layers:
        for array in layer.parameters.values():
            array += rng.normal(size=array.shape)
    return layers


def network(activation="gelu") -> list[Layer]:
    return drawn(gp.mlp([H, 4 * H, H], activation=activation))


def gated() -> list[Layer]:
    return drawn([SwiGLU(H, 4 * A, rng=np.random.default_rng(0))])


def attention(**how) -> list[Layer]:
    return drawn([Attention(H, A, rng=np.random.default_rng(0), **how)])


KINDS = {
    "network": network,
    "with a ReLU": lambda: network("relu"),
    "attention": attention,
    "causal": lambda: attention(causal=True),
    "recomputed": lambda: attention(recompute=True),
    "gated": gated,
    "without biases": lambda: attention(bias=False, rotary=10.0),
    "in tiles": lambda: attention(flash=True, causal=True),
}
EACH = pytest.mark.parametrize("layers", KINDS.values(), ids=KINDS)


def arrays():
    rng = np.random.default_rng(2)
    return rng.normal(size=(B, S, H)), rng.normal(size=(B, S, H))


def uncut(layers, x, dy):
    """Output, gradient of the input, and gradients of the weights, on one device."""
    model, gradients = Partition(layers), {}
    y, saved = model.forward(x, Context())
    return y, model.backward(saved, dy, gradients), gradients


def far(a, b):
    assert a.shape == b.shape
    return abs(a - b).max() / abs(b).max()


@DEVICES
@EACH
def test_output_and_all_gradients_are_those_of_the_layer_that_is_not_cut(layers, t):
    layers, (x, dy) = layers(), arrays()
    step = TensorParallel(layers, t).step(x, dy)
    y, dx, gradients = uncut(layers, x, dy)
    assert far(step.output, y) < 1e-12 and far(step.input_gradient, dx) < 1e-12
    assert set(step.gradients) == set(gradients) and len(gradients) in (2, 4)
    assert all(far(step.gradients[key], gradients[key]) < 1e-12 for key in gradients)


@EACH
def test_a_device_holds_its_share_of_every_matrix_and_nothing_of_anothers(layers):
    whole = Partition(layers())
    parts = TensorParallel(list(whole.layers), 4).parts
    for key, array in whole.parameters.items():
        own = [part.parameters[key] for part in parts]
        alone = key[1] == "bo" or key == (2, "b")
        assert [each.size for each in own] == [array.size if alone else array.size // 4] * 4
        assert sum(each.sum() for each in own) == pytest.approx(array.sum())
        assert not any(np.may_share_memory(each, other) for each in own for other in [array])
    assert all(each.base is None for part in parts for each in part.parameters.values())


def test_q_k_and_v_of_a_head_go_to_the_same_device():
    """Equal stretches of the columns would give device 0 the queries and a bit of the keys."""
    [layer], (x, _) = attention(), arrays()
    _, qkv, *_ = layer.forward(x, Context())[1]
    for device, part in enumerate(TensorParallel([layer], 2).parts):
        [(_, own, *_)] = part.forward(x, Context())[1]
        heads = qkv.reshape(B, S, 3, 2, -1)[:, :, :, device]
        assert far(own.reshape(heads.shape), heads) < 1e-12


@pytest.mark.parametrize("t", [1, 2])
def test_grouped_queries_stay_with_the_keys_that_they_share(t):
    how = {"kv_heads": 2, "rotary": 10.0, "flash": True, "causal": True}
    layers, (x, dy) = attention(**how), arrays()
    step = TensorParallel(layers, t).step(x, dy)
    y, dx, gradients = uncut(layers, x, dy)
    assert far(step.output, y) < 1e-12 and far(step.input_gradient, dx) < 1e-12
    assert all(far(step.gradients[key], gradients[key]) < 1e-12 for key in gradients)
    with pytest.raises(ValueError, match="divide 2 heads of keys and values, 2 would work"):
        TensorParallel(layers, 4)


# What is sent


@DEVICES
def test_each_device_sends_what_megatrons_formula_says(t):
    """Section 3.2 of Narayanan et al. 2021: 8bsh (t-1)/t numbers for attention and network, both ways."""
    x, dy = arrays()
    steps = [TensorParallel(layers, t).step(x, dy) for layers in (attention(), network())]
    assert [list(step.sent) for step in steps] == [["forward", "backward"]] * 2
    for device in range(t):
        sent = [each[device] for step in steps for each in step.sent.values()]
        assert len(sent) == 4 and set(sent) == {2 * (t - 1) * x.nbytes // t}
        assert sum(sent) / x.itemsize == 8 * B * S * H * (t - 1) / t
        assert sum(sent) * 2 / x.itemsize == f.tensor_parallel_bytes(S, B, H, t)


# What a device keeps


def kept(part: Partition, s: int, h: int) -> int:
    """What a device saves of one sample, in bytes, beside dropout behind the part and the LayerNorm."""
    x = gp.MetaArray((1, s, h), np.float16)
    [found] = gp.profile([part], (x, x), gp.mse).stages
    sizes = {"x": 2 * s * h}
    total = 0
    for number, layer in enumerate(found):
        for size in layer.saved:
            if size == "x":
                total += sizes["x"] if number == 0 else found[number - 1].output.of(1)
            elif size != "y":
                total += size.of(1)
    return total


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize(("h", "a", "s"), [(12_288, 96, 2_048), (1_024, 16, 512)])
def test_of_gpt3s_block_every_device_keeps_10sbh_and_its_share_of_the_rest(h, a, s, t):
    """Korthikanti et al. 2022: two LayerNorms (4sbh) and two dropouts (2sbh) beside what the parts keep."""
    paper = {"rng": None, "dtype": np.float16}
    core = TensorParallel([Attention(h, a, dropout=0.1, **paper)], t)
    wide, narrow = Linear(h, 4 * h, **paper), Linear(4 * h, h, **paper)
    both = [kept(cut.parts[0], s, h) for cut in (core, TensorParallel([wide, gp.core.GELU(), narrow], t))]
    assert sum(both) + 6 * s * h == f.tensor_parallel_block_memory(s, 1, h, a, t)
    assert f.tensor_parallel_block_memory(s, 1, h, a, 1) == f.block_memory(s, 1, h, a)


@pytest.mark.parametrize("t", [1, 2, 4])
def test_the_flops_are_shared_out_evenly(t):
    x = gp.MetaArray((1, S, H), np.float64)
    for layers in (network(), gated(), attention(), attention(recompute=True), attention(flash=True)):
        for kind in ("flops", "weight_flops", "recompute_flops"):
            total = sum(getattr(layer, kind) for layer in profiled(Partition(layers), x))
            for part in TensorParallel(layers, t).parts:
                assert sum(getattr(layer, kind) for layer in profiled(part, x)) * t == total


def profiled(part: Partition, x: gp.MetaArray):
    [layers] = gp.profile([part], (x, x), gp.mse).stages
    return layers
