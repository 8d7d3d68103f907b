"""What a configuration takes: its parts add up, and every number follows from work that is really done."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

import gpipe_sim as gp
from benchmarks.measured import BY_HAND
from benchmarks.published_steps import FREE, recompute
from gpipe_sim.core import Linear
from gpipe_sim.core.timeline import number
from gpipe_sim.memory.limit import in_bytes
from gpipe_sim.pricing.calibrate import Errors
from gpipe_sim.pricing.groups import Group
from gpipe_sim.pricing.layer_times import Sums, layer_time
from gpipe_sim.pricing.layout import read_layout
from gpipe_sim.pricing.price import Priced
from gpipe_sim.pricing.rows import measured_rows, read_rows
from gpipe_sim.pricing.tensor_parts import tensor_parts
from gpipe_sim.replicas import TensorParallel
from gpipe_sim.replicas.ring import ring_all_reduce
from gpipe_sim.transformers import Attention, SwiGLU, TransformerBlock

LINKS = gp.Nodes(8, inside=gp.Link(bandwidth=200e9), between=gp.Link(bandwidth=20e9))


def cluster(devices, accelerator=gp.pricing.A100, links=LINKS):
    return gp.Cluster(devices, accelerator, memory=80e9, links=links)


def model(blocks=8, **options):
    return gp.gpt(blocks, 256, 8, tokens=512, sequence=64, dtype="f2", **options)


def tokens(samples=32):
    return (gp.MetaArray((samples, 64), "i4"),) * 2


CONFIGURATIONS = [
    {"tensor": t, "pipeline": p, "microbatch": m, "recompute": again, "sequence_parallel": dealt}
    for t, p, m, again, dealt in product(
        (1, 2, 4), (1, 2, 4), (1, 2), ("none", "selective", "full"), (False, True)
    )
]


@pytest.mark.parametrize("how", CONFIGURATIONS, ids=str)
def test_the_parts_add_up_to_the_time_and_only_links_can_be_left_out(how):
    priced = gp.price(model(), cluster(16), tokens(), **how)
    assert sum(priced.parts.values()) == pytest.approx(priced.time, rel=1e-12)
    assert all(part >= -1e-12 for part in priced.parts.values()), priced.parts
    assert (priced.parts["tensor"] > 0) == (how["tensor"] > 1)
    assert (priced.parts["bubble"] > 1e-12) == (how["pipeline"] > 1)
    free = gp.price(model(), cluster(16, links=gp.Link()), tokens(), **how)
    assert free.time < priced.time and free.parts["messages"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("pipeline", "schedule"), [(1, gp.OneFOneB), (4, gp.OneFOneB), (4, gp.ZBH1), (2, gp.GPipe)]
)
def test_with_products_alone_a_step_takes_what_its_flops_take(pipeline, schedule):
    """Computed another way: from the profile's FLOPs, which are counted on real products."""
    gpu = gp.Accelerator(1e14)
    layers, batch, cut = model(), tokens(), [8 // pipeline] * pipeline
    cut[0] += 2
    cut[-1] += 2
    devices = gp.Cluster(pipeline, gpu, memory=80e9)
    priced = gp.price(layers, devices, batch, pipeline=pipeline, microbatch=2, schedule=schedule)
    profile = gp.profile(gp.split(layers, balance=cut), batch, gp.cross_entropy)
    costs = gp.planning.costs_from_flops(profile, gpu, 16)
    assert float(priced.time) == pytest.approx(
        float(gp.simulate(schedule(pipeline, 16), costs).makespan), rel=1e-12
    )


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_tensor_parallel_devices_share_the_products_and_sum_the_bytes_that_real_arrays_send(devices):
    rng = np.random.default_rng(0)
    attention = Attention(8, 4, rng=rng)
    network = [Linear(8, 32, rng=rng), gp.core.GELU(), Linear(32, 8, rng=rng)]
    block = TransformerBlock(8, 4, rng=None)
    x = gp.MetaArray((2, 6, 8), "f8")
    real, dy = rng.normal(size=x.shape), rng.normal(size=x.shape)
    [_, part, _] = tensor_parts([Linear(8, 8, rng=None), block, Linear(8, 8, rng=None)], devices)
    assert part.layer.work(x).flops * devices == block.work(x).flops
    assert part.layer.work(x).weight_flops * devices == block.work(x).weight_flops
    sent = [TensorParallel(layers, devices).step(real, dy).sent for layers in ([attention], network)]
    for way, sums in (("forward", part.forward), ("backward", part.backward)):
        counted = 2 * (devices - 1) * sums * x.nbytes // devices
        assert sum(each[way][0] for each in sent) == counted if devices > 1 else counted == 0


def test_a_ring_leaves_its_nodes_over_the_share_that_it_has():
    assert Group(8, 1).ring(LINKS, 200e9) == pytest.approx(2 * 7 / 8)
    assert Group(2, 8).ring(LINKS, 20e9) == pytest.approx(1), "eight rings, a link each"
    assert Group(4, 4).ring(LINKS, 20e9) == pytest.approx(0.75), "four rings, two links each"
    one = gp.pricing.OneRail(8, inside=LINKS.inside, between=LINKS.between)
    assert Group(4, 4).ring(one, 20e9) == pytest.approx(1.5), "four rings, a link each"
    assert Group(16, 1).ring(one, 16e9) == pytest.approx(2 * 15 / 16 * 16e9 / 160e9), "all links for one"
    assert Group(2, 4).ring(LINKS, 200e9) == pytest.approx(1), "inside a node"
    assert Group(16, 1).ring(LINKS, 16e9) == pytest.approx(2 * 15 / 16 * 16e9 / 160e9), "all links for one"
    assert Group(1, 4).ring(LINKS, 1e9) == 0


@pytest.mark.parametrize("devices", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_group_leaves_its_nodes_where_one_of_its_kind_does(devices, stride, blocks):
    """Counted device by device."""
    groups = [
        [block * devices * stride + first + stride * i for i in range(devices)]
        for block in range(blocks)
        for first in range(stride)
    ]
    leaves = any(len({device // 8 for device in group}) > 1 for group in groups)
    assert Group(devices, stride, blocks).leaves(8) >= leaves
    if 8 % (devices * stride) == 0 or devices * stride * blocks <= 8:
        assert Group(devices, stride, blocks).leaves(8) == leaves


def test_tensor_parallelism_over_slow_links_is_said_and_a_node_that_is_faster_outside_than_inside_warned_of():
    words = str(gp.price(model(12), cluster(16), tokens(), tensor=8, pipeline=2))
    assert "leaves its nodes" not in words
    small = gp.Nodes(4, inside=LINKS.inside, between=LINKS.between)
    assert "leaves its nodes" in str(
        gp.price(model(12), cluster(16, links=small), tokens(), tensor=8, pipeline=2)
    )
    with pytest.warns(UserWarning, match="in bits, or that of a whole node"):
        cluster(16, links=gp.Nodes(8, inside=gp.Link(bandwidth=200e9), between=gp.Link(bandwidth=800e9)))


def test_recomputing_a_block_runs_its_forward_again_and_zero_shares_the_update():
    how = {"pipeline": 2, "microbatch": 2}
    plain, full = (gp.price(model(), cluster(2), tokens(), recompute=r, **how) for r in ("none", "full"))
    pieces = zip(plain.layout.pieces, full.layout.pieces, strict=True)
    [(block, again)] = [(a.work, b.work) for a, b in pieces if a.shape]
    assert again.again == block and full.time > plain.time
    both = [gp.price(model(), cluster(8), tokens(), zero=zero, **how).parts["optimizer"] for zero in (0, 1)]
    assert both[0] == pytest.approx(4 * both[1], rel=1e-6)


def test_published_steps_come_out_with_numbers_that_were_fitted_to_none():
    """arXiv:2205.05198, table 5, within 5% each; arXiv:2104.04473, tables 1 and 2, within 11% each."""
    for make, most, mean in zip(FREE, (0.05, 0.11, 0.05), (0.03, 0.055, 0.02), strict=True):
        errors = Errors.of([step.priced(gp.pricing.A100).time / step.seconds - 1 for step in make()])
        assert errors.worst <= most and errors.mean <= mean, (make, errors)
    assert len(list(recompute())) == 8


def test_the_committed_rows_are_read_and_predicted_by_hand():
    counts = {"one-node": (698, 0.08), "many-nodes": (58, 0.08)}
    for name, (count, most) in counts.items():
        rows = measured_rows(name)
        assert len(rows) == count
        found = [row.off(row.priced(BY_HAND).time) for row in rows]
        assert Errors.of(found).mean < most, name


HEAD = "gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,pipeline,ms\n"
BAD_ROWS = {
    "two columns": ("a,b\n1,2\n", "has no column gpus, global_batch"),
    "text": (HEAD + "8,8,x,64,4,4,64,1,2,10\n", "line 2 of 'rows.csv': micro_batch has to be a whole number"),
    "heads": (HEAD + "8,8,1,64,2,4,64,4,2,10\n", "TensorParallel needs devices that divide 2 heads"),
    "devices": (HEAD + "6,8,1,64,4,4,64,4,1,10\n", "tensor= x pipeline= to divide the cluster's 6 devices"),
    "layers": (HEAD + "2,8,1,64,4,3,64,1,2,10\n", "cannot deal out 3 x TransformerBlock"),
    "batch": (HEAD + "8,9,1,64,4,4,64,1,2,10\n", "9 samples are not a multiple of 4 replicas x 1"),
    "no time": (HEAD + "8,8,1,64,4,4,64,1,2,0\n", "a step cannot take 0 ms"),
    "short": (HEAD + "8,8,1,64\n", "it has not as many columns as the first line"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_row_that_is_none_is_refused_by_its_line(tmp_path, text, words):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_rows(tmp_path / "rows.csv")


MORE = "vocabulary,dropout,dtype,flash,recompute\n"


def test_a_row_may_say_more_of_its_model(tmp_path):
    """The same as asking price for it; and an empty place is as no column."""
    (tmp_path / "rows.csv").write_text(
        HEAD.replace("ms\n", MORE) + "2,8,2,64,4,4,32,1,2,100,0,bfloat16,yes,none\n2,8,2,64,4,4,32,1,2,,,,,\n"
    )
    said, usual = read_rows(tmp_path / "rows.csv")
    layers = gp.gpt(4, 64, 4, tokens=100, sequence=32, flash=True, dtype="bfloat16")
    x = gp.MetaArray((8, 32), "i4")
    how = {"tensor": 1, "pipeline": 2, "microbatch": 2, "zero": 1, "gradient_bytes": 2}
    assert Priced(said.layout, cluster(2)).time == gp.price(layers, cluster(2), (x, x), **how).time
    layers = gp.gpt(4, 64, 4, tokens=51_200, sequence=32, dropout=0.1, dtype="f2")
    asked = gp.price(layers, cluster(2), (x, x), recompute="full", **how)
    assert Priced(usual.layout, cluster(2)).time == asked.time


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "0,0,float16,no,none": "vocabulary has to be a whole number above 0",
        "9,1,float16,no,none": "needs 0 <= rate < 1",
        "9,0,float64,no,none": "a row needs dtype to be one of",
        "9,0,float16,1,none": "a row needs flash to be one of",
        "9,0,float16,no,some": "price needs recompute to be one of",
    }.items(),
)
def test_what_a_row_says_besides_is_refused_by_its_line(tmp_path, text, words):
    (tmp_path / "rows.csv").write_text(HEAD.replace("ms\n", MORE) + f"2,8,2,64,4,4,32,1,2,{text}\n")
    with pytest.raises(ValueError, match=f"line 2 of 'rows.csv': .*{words}"):
        read_rows(tmp_path / "rows.csv")


def priced(layers=None, devices=2, **how):
    return lambda: gp.price(model() if layers is None else layers, cluster(devices), tokens(), **how)


REFUSED = {
    "model": (priced([]), ValueError, "at least one layer"),
    "cut": (priced(pipeline=2, cut=[1, 2]), ValueError, "share out 12 layers"),
    "replicas": (priced(devices=8, tensor=2, replicas=3), ValueError, "leave 4 replicas"),
    "recompute": (priced(recompute="all"), ValueError, "needs recompute to be one of"),
    "stages": (priced(pipeline=2, stages_per_device=2), ValueError, "needs stages_per_device=1 for OneFOneB"),
    "a rate": (lambda: gp.Accelerator(400e12, card="A100"), ValueError, "flops <= 3.12e.14, which the data"),
    "a card": (lambda: gp.Accelerator(4e12, card="B1"), ValueError, "card"),
    "llama": (lambda: tensor_parts([SwiGLU(8, 15, rng=None)] * 3, 2), ValueError, "cannot deal out SwiGLU"),
}


@pytest.mark.parametrize(("run", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_in_words(run, error, words):
    with pytest.raises(error, match=words):
        run()


def test_what_is_printed_has_every_number_that_was_used():
    links = gp.Nodes(4, inside=gp.Link(1e-6, 2e11), between=gp.Link(3e-6, 8e10), per="node")
    priced = gp.price(model(), cluster(8, links=links), tokens(), tensor=2, pipeline=4, recompute="full")
    words = str(priced)
    for part in (priced.time, *priced.parts.values()):
        assert number(part) in words
    [largest] = {max(sum(each.values()) for each in priced.memory)}
    assert in_bytes(largest) in words and "tensor 2 x pipeline 4 x replicas 1, 1F1B" in words
    for each in fields(gp.pricing.A100):
        value = getattr(gp.pricing.A100, each.name)
        assert not value or f"{each.name} {value if isinstance(value, str) else f'{value:g}'}" in words
    assert "latency 1e-06, bandwidth 2e+11" in words and "latency 3e-06, bandwidth 2e+10" in words


def test_a_pipeline_of_two_large_cards_and_two_small():
    """With products alone, small cards of a quarter of the rate are devices of a quarter of the speed."""
    large, small = gp.Accelerator(4e14), gp.Accelerator(1e14)
    mixed = gp.pricing.Mixed(gp.Cluster(2, large, memory=8e10), gp.Cluster(2, small, memory=1e6))
    how = {"pipeline": 4, "microbatch": 2, "cut": [4, 4, 2, 2]}
    priced = gp.price(model(), mixed, tokens(), **how)
    alone = gp.price(model(), gp.Cluster(4, large, memory=8e10), tokens(), **how)
    slower = replace(alone._costs(), speed=[1, 1, 0.25, 0.25])
    expected = gp.simulate(gp.OneFOneB(4, 16), slower).makespan
    assert priced.time == pytest.approx(float(expected), rel=1e-12)
    assert sum(priced.parts.values()) == pytest.approx(priced.time)
    assert alone.fits and not priced.fits and "2 accelerators of flops 1e+14" in str(priced)
    fastest = gp.price(model(), gp.Cluster(4, mixed.accelerator, memory=8e10), tokens(), **how)
    assert fastest.time == alone.time < priced.time and mixed.memory == 8e10
    with pytest.raises(ValueError, match="4 devices, put unequal ones together as device 0"):
        gp.price(model(), mixed, tokens())
    with pytest.raises(ValueError, match="copies of a stage, here of stage"):
        gp.price(model(), mixed, tokens(), pipeline=4, schedule=gp.families.Chimera, cut=[4, 4, 2, 2])
    with pytest.raises(ValueError, match="at least two groups"):
        gp.pricing.Mixed(mixed)


def test_layers_that_are_no_blocks_need_no_cut_on_one_device():
    batch = (gp.MetaArray((8, 64), "f4"), gp.MetaArray((8,), "i4"))
    priced = gp.price(gp.mlp([64, 64, 64, 10]), gp.Cluster(1, gp.pricing.A100, memory=80e9), batch)
    assert priced.layout.cut == (5,) and sum(priced.parts.values()) == pytest.approx(priced.time)


def test_ends_of_a_model_move_the_bytes_of_the_arrays_that_they_read_and_write():
    gpu, table = gp.Accelerator(1e30, hbm=1e9), gp.transformers.Embedding(512, 256, rng=None, dtype="f2")
    priced = gp.price([table, *model()[1:]], cluster(1, gpu, gp.Link()), tokens())
    nanoseconds = 1e9 * priced.piece_times(gpu, split=False)
    rows, logits = 64 * 256 * 2, 64 * 512 * 2
    assert nanoseconds[0, 0] == pytest.approx(2 * rows), "rows of the table in, an array of them out"
    assert nanoseconds[-1, 0] == pytest.approx(2 * logits), "logits in, their gradient out"


def test_each_step_of_a_ring_is_late_by_the_latency_of_its_link():
    assert Group(4, 1).ring(gp.Link(latency=1), 0) == 6
    assert Group(4, 1).half(gp.Link(latency=1, bandwidth=2), 16) == 3 * (1 + 4 / 2)


def test_messages_leave_a_node_that_the_replicas_of_a_stage_fill():
    """Four replicas of stage 0 are on devices 0 to 3, those of stage 1 on 4 to 7."""
    fast, slow = gp.Link(bandwidth=1e12), gp.Link(bandwidth=1e8)

    def messages(links):
        return gp.price(model(), cluster(8, links=links), tokens(), pipeline=2).parts["messages"]

    four, eight = (gp.Nodes(many, inside=fast, between=slow) for many in (4, 8))
    assert messages(four) == pytest.approx(messages(slow))
    assert messages(eight) == pytest.approx(messages(fast))
    assert messages(slow) > 100 * messages(fast) > 0


def test_a_layout_knows_what_a_message_is():
    how = {"tensor": 2, "pipeline": 2, "schedule": gp.OneFOneB}
    for dealt in (False, True):
        layout = read_layout(model(), 4, tokens(), gp.cross_entropy, sequence_parallel=dealt, **how)
        assert layout.message == 64 * 256 * 2


@pytest.mark.parametrize("zero", [0, 1])
def test_both_ends_of_a_tied_weight_sum_its_gradient_where_they_are_on_two_devices(zero):
    """As many bytes as the ring sends on real arrays."""
    tied = model(tied=True)
    [sent, _] = ring_all_reduce([np.zeros((512 // 2, 256), "f4")] * 2)[1]
    slow = gp.Link(bandwidth=1e5)
    how = {"tensor": 2, "zero": zero}
    for pipeline, replicas in ((1, 2), (2, 2), (4, 1)):
        devices = cluster(2 * pipeline * replicas, links=slow)
        parts = gp.price(tied, devices, tokens(), pipeline=pipeline, **how)
        alone = replace(parts.layout, model=tuple(model()))
        more = parts.time - Priced(alone, devices).time
        assert more == pytest.approx((pipeline > 1) * sent / (replicas if zero else 1) / 1e5)
    with pytest.raises(ValueError, match="price needs one Embedding"):
        _ = gp.price(tied[1:], cluster(1), (gp.MetaArray((4, 64, 256), "f2"), tokens(4)[1])).time


def test_what_a_kernel_keeps_inside_is_not_read_from_memory():
    """Attention in tiles: its memory time is that of queries, keys, values and what it gives."""
    slow = gp.Accelerator(1e30, hbm=1e9)
    x = gp.MetaArray((1, 1024, 64), "f2")
    times = []
    for tile in (16, 256):
        attention = Attention(64, 4, rng=None, dtype="f2", flash=True)
        attention.tile = tile
        work = attention.work(x)
        found = layer_time(work, 0, Sums(), slow, lambda size: 0.0, 2, 1e30, 1e30)
        own = [each for each in work.products if each.weight]
        outer = sum(each.m * each.k + each.k * each.n + each.m * each.n for each in own)
        assert found.forward.device == pytest.approx((2 * outer + 1024 * (3 + 1) * 64 * 2) / 1e9)
        times.append(found)
    for one, other in zip(*times, strict=True):
        assert one == pytest.approx(other)


def test_a_layer_that_was_changed_is_priced_anew():
    rng = np.random.default_rng(0)
    small, large = ([gp.core.Linear(8, n, rng=rng), gp.core.Linear(n, 4, rng=rng)] for n in (16, 4000))
    batch, where = (
        (gp.MetaArray((4, 8), "f8"), gp.MetaArray((4,), "i8")),
        gp.Cluster(1, gp.Accelerator(1e12), 80e9),
    )
    before = gp.price(small, where, batch).time
    for layer, other in zip(small, large, strict=True):
        vars(layer).update(vars(other))
    assert gp.price(small, where, batch).time == gp.price(large, where, batch).time > before
