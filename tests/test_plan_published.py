"""GPT-3 and BERT-large on clusters whose speeds are published."""

import numpy as np
import pytest

import gpipe_sim as gp
from gpipe_sim.planning.candidates import Candidate
from gpipe_sim.planning.cluster import Mesh
from gpipe_sim.planning.layer_table import table_of
from gpipe_sim.planning.step_time import parts_of

ADAM = gp.MixedPrecision(gp.Adam(1e-4))


def sequences(count: int, places: int) -> tuple[gp.MetaArray, gp.MetaArray]:
    return gp.MetaArray((count, places), np.int64), gp.MetaArray((count, places), np.int64)


def test_gpt3_takes_as_long_as_published():
    """174.6 billion parameters on 384 A100 at 153 TFLOP/s each, a batch of 1,536, with recompute.

    Narayanan et al. 2021, arXiv:2104.04473: table 2, the FLOPs of equation 3, and 96 devices to a pipeline (8
    that share each layer, 12 stages), section 5.4.1. A device here is a node of 8 such GPUs of 80 GB, with
    eight links of 200 Gb/s (section 5). The 153 TFLOP/s are those of the whole step, bubble and messages
    included, so the plan has to take a little longer.
    """
    node = gp.Accelerator(flops=8 * 153e12)
    cluster = gp.Cluster(48, node, memory=8 * 80e9, links=gp.Link(5e-6, bandwidth=8 * 25e9))
    published = gp.formulas.transformer_flops(96, 12_288, 51_200, 2_048, 1_536) / (384 * 153e12)
    assert published == pytest.approx(76.8, abs=0.1)
    table = table_of("plan", gp.gpt3_175b(), cluster, sequences(1_536, 2_048), gp.cross_entropy, ADAM)
    schedule, cut = gp.Interleaved1F1B(12, 384, stages_per_device=4), table.cut(48, "early", True)
    each = Candidate(table, schedule, Mesh(12, 4), cut, recompute=True)
    found = each.simulated()
    assert 1 < found.step / published < 1.05
    parts = parts_of(each.profile, each.order, node, found.pipelines, found.step)
    assert parts["compute"] + parts["recompute"] == pytest.approx(published, rel=0.005)
    assert parts["recompute"] == pytest.approx(parts["compute"] / 3, rel=0.001)


def test_gpt3_does_not_fit_8_gpus():
    """S2 puts it there. It takes 16 bytes for each parameter, 2.8 TB."""
    cluster = gp.Cluster(8, gp.Accelerator(140e12), memory=80e9)
    only = {"schedules": [gp.OneFOneB], "replicas": [1], "microbatches": [8]}
    with pytest.raises(gp.errors.MemoryLimitError) as refused:
        gp.plan(gp.gpt3_175b(), cluster, sequences(8, 2_048), gp.cross_entropy, ADAM, **only)
    said = str(refused.value)
    assert "no plan that fits 8 devices of 80 GB each" in said
    needed = int(said.split(" bytes. ")[0].split()[-1].replace(",", ""))
    assert needed > 2.8e12 / 8
    assert "A pipeline of 48 such devices fits" in said


def test_bert_large_on_8_gpus_of_16_gb():
    """At the 137 TFLOP/s that a model of 1.7 billion reaches on one A100: arXiv:2104.04473, table 1.

    Its links are assumed to carry 25 GB/s. S2 asks for [6] * 4 layers or none: what is best depends on the
    all-reduce, which a pipeline of two halves, and whose rings overlap if there are several stages.
    """
    cluster = gp.Cluster(8, gp.Accelerator(137e12, overhead=1e-5), memory=16e9, links=gp.Link(5e-6, 25e9))
    layers, batch = gp.bert_large(), sequences(256, 512)
    only = {"schedules": [gp.OneFOneB, gp.Interleaved1F1B], "rows": 1}
    plans = gp.plan(layers, cluster, batch, gp.cross_entropy, ADAM, **only)
    assert all(row.peak <= 16e9 for row in plans) and plans.gap < 0.1
    best = {
        replicas: gp.plan(layers, cluster, batch, gp.cross_entropy, ADAM, replicas=[replicas], **only).best
        for replicas in (1, 2, 8)
    }
    assert best[8].time < best[2].time < best[1].time
    assert best[1].parts["all-reduce"] == 0 < best[8].parts["all-reduce"]
    assert [row.parts["recompute"] for row in best.values()] == [0, 0, 0]
