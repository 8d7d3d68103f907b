"""Units that cannot be meant: each is warned of, with what would be, and no machine that there is."""

import re
import warnings
from fractions import Fraction

import pytest

import gpipe_sim as gp
from gpipe_sim import Accelerator, Cluster, Link
from gpipe_sim.planning import costs_from_flops

BATCH = gp.MetaArray((64, 512), "i8"), gp.MetaArray((64, 512), "i8")
PROFILE = gp.profile(gp.split(gp.bert_large(), stages=4), BATCH, gp.cross_entropy)
ORDER = gp.OneFOneB(4, 8)


def step(flops=312e12, overhead=1e-5, latency=5e-6, bandwidth=25e9) -> gp.core.Timeline:
    """A step of BERT on four devices of a cluster."""
    links = gp.Nodes(2, Link(latency, 10 * bandwidth), Link(latency, bandwidth))
    cluster = Cluster(4, Accelerator(flops, overhead), 80e9, links)
    return gp.simulate(ORDER, costs_from_flops(PROFILE, cluster.accelerator, 8), links=links, profile=PROFILE)


@pytest.mark.parametrize("second", [1, 10**3, 10**6, 10**9, Fraction(1, 60)])
def test_a_machine_may_be_told_in_any_unit_of_time(second):
    """A warning would be an error here. Of an A100, a CPU with slow Ethernet, and all of a rack as one."""
    for flops, bandwidth in ((312e12, 25e9), (10**12, 10**8), (10**16, 10**12)):
        timeline = step(flops / second, 1e-5 * second, 5e-6 * second, bandwidth / second)
        assert timeline.makespan > 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"overhead": 10}, r"an overhead of 10 units of time, each of 3.12e\+14 FLOPs: of seconds, a micro"),
        ({"latency": 5}, r"a latency of 5 units of time, each of 3.12e\+14 FLOPs"),
        ({"bandwidth": 25}, r"3.12e\+14 FLOPs and links of 250 bytes in a unit of time: .* bandwidth=25e9"),
        (
            {"flops": 312},
            r"312 FLOPs and links of 2.5e\+11 bytes .*: of seconds, 312 TFLOP/s are flops=312e12",
        ),
    ],
)
def test_one_number_in_another_unit_is_warned_of(wrong, says):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step(**wrong)
    assert any(re.search(says, str(each.message)) for each in told), [str(each.message) for each in told]
    assert told[0].filename == __file__, "it points at who made the cluster"


@pytest.mark.parametrize("flops", [312, 999.9, Fraction(1, 3)])
def test_a_rate_in_tera_is_warned_of_where_it_is_given(flops):
    with pytest.warns(UserWarning, match=r"fewer than any in a nanosecond: .* flops=312e12") as told:
        Accelerator(flops)
    assert told[0].filename == __file__
    Accelerator(1000)


def test_a_bandwidth_in_giga_is_warned_of_beside_a_model():
    with pytest.warns(UserWarning, match=r"busy [\d,]+ times as long .*: bandwidth is in bytes"):
        gp.simulate(ORDER, links=Link(bandwidth=25), profile=PROFILE)


@pytest.mark.parametrize("percent", [10, 5])
def test_noise_is_a_share_not_per_cent(percent):
    with pytest.raises(ValueError, match=r"noise from 0 to 3, a share of each time: 0.1 is 10%"):
        gp.simulate_many(ORDER, noise=percent)
