"""What a configuration takes: its parts add up, and every number follows from work that is really done."""

from itertools import product

import numpy as np
import pytest

import gpipe_sim as gp
from benchmarks.published_steps import FREE, recompute
from gpipe_sim.core import Linear
from gpipe_sim.pricing.calibrate import Errors
from gpipe_sim.pricing.groups import Group
from gpipe_sim.pricing.layout import read_layout
from gpipe_sim.pricing.price import Priced
from gpipe_sim.pricing.rows import measured_rows, on, read_rows
from gpipe_sim.pricing.tensor_parts import tensor_parts
from gpipe_sim.replicas import TensorParallel
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
    assert Group(2, 4).ring(LINKS, 200e9) == pytest.approx(1), "inside a node"
    assert Group(16, 1).ring(LINKS, 16e9) == pytest.approx(2 * 15 / 16 * 16e9 / 160e9), "all links for one"
    assert Group(1, 4).ring(LINKS, 1e9) == 0


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
    counts = {"one-node": (698, 0.085), "many-nodes": (58, 0.13)}
    for name, (count, most) in counts.items():
        rows = measured_rows(name)
        assert len(rows) == count
        found = [Priced(row.layout, on(cluster(8), row.devices)).time / row.time - 1 for row in rows]
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


def test_a_layout_knows_what_a_message_is():
    how = {"tensor": 2, "pipeline": 2, "schedule": gp.OneFOneB}
    for dealt in (False, True):
        layout = read_layout(model(), 4, tokens(), gp.cross_entropy, sequence_parallel=dealt, **how)
        assert layout.message == 64 * 256 * 2 // (2 if dealt else 1)
