r"""the fastest plans for a model on a cluster

It looks at every tensor degree inside a node, length of pipeline, number of copies, schedule, microbatch,
recompute and cut, and shows the fastest plans that fit. Models are on paper, in 2-byte numbers, and trained
with Adam in mixed precision. Times are in seconds. Say what a device reaches with such layers, not what its
data sheet promises.

examples:
  gpipe-sim plan --model bert-large --devices 4 --flops 137e12 --hbm 1.3e12 --memory 16e9 --batch 64 --rows 4
  gpipe-sim plan --model llama2-7b --devices 8 --node 4 --flops 400e12 --hbm 2.5e12 --memory 80e9 \
      --batch 8 --bandwidth 300e9 --between 25e9 --rows 4
  gpipe-sim plan --model gpt --blocks 4 --features 256 --heads 4 --tokens 1000 --sequence 64 \
      --devices 4 --flops 50e12 --memory 4e9 --batch 16 --latency 5e-6 --bandwidth 25e9
"""

from argparse import ArgumentParser, Namespace

from gpipe_sim.command.answer import Answer
from gpipe_sim.core.layers import Layer
from gpipe_sim.core.losses import cross_entropy
from gpipe_sim.core.meta_array import MetaArray
from gpipe_sim.errors import whole
from gpipe_sim.links.links import Link, Nodes
from gpipe_sim.planning.plans import plan
from gpipe_sim.pricing.cluster import Cluster
from gpipe_sim.pricing.hardware import Accelerator
from gpipe_sim.transformers.known import KNOWN
from gpipe_sim.transformers.models import gpt
from gpipe_sim.transformers.optimizers import Adam, MixedPrecision

SIZES = ("blocks", "features", "heads", "tokens", "sequence")


def add(parser: ArgumentParser) -> None:
    model, cluster = parser.add_argument_group("the model"), parser.add_argument_group("the cluster")
    help_ = f"gpt, of your own sizes, or one of {', '.join(KNOWN)}"
    model.add_argument("--model", required=True, choices=[*KNOWN, "gpt"], metavar="NAME", help=help_)
    for size in SIZES[:-1]:
        model.add_argument(f"--{size}", type=int, metavar="N", help="of a gpt")
    model.add_argument("--sequence", type=int, metavar="N", help="tokens in a text (default: all it takes)")
    model.add_argument("--batch", required=True, type=int, metavar="N", help="texts in a step")
    cluster.add_argument("--devices", required=True, type=int, metavar="N", help="all of them are used")
    cluster.add_argument("--flops", required=True, type=float, help="that a device reaches, for each second")
    cluster.add_argument("--memory", required=True, type=float, metavar="BYTES", help="of a device")
    cluster.add_argument("--latency", type=float, default=0, metavar="S", help="of a message (default: 0)")
    help_ = "of a link, in bytes a second (default: messages take no time)"
    cluster.add_argument("--bandwidth", type=float, default=float("inf"), metavar="B", help=help_)
    help_ = "devices of a node: tensor parallelism stays inside (default: all devices are one node)"
    cluster.add_argument("--node", type=int, metavar="N", help=help_)
    help_ = "of a link between nodes (default: as inside)"
    cluster.add_argument("--between", type=float, metavar="B", help=help_)
    help_ = "that a device's memory moves in a second (default: at once)"
    cluster.add_argument("--hbm", type=float, default=float("inf"), metavar="BYTES", help=help_)
    parser.add_argument("--rows", type=int, default=10, metavar="N", help="how many plans (default: 10)")


def answer(asked: Namespace) -> Answer:
    rows, batch = whole("plan", "--rows", asked.rows), whole("plan", "--batch", asked.batch)
    layers, sequence = model_of(asked)
    cluster = Cluster(asked.devices, Accelerator(asked.flops, hbm=asked.hbm), asked.memory, links_of(asked))
    texts = MetaArray((batch, sequence), "i8")
    try:
        return Answer(str(plan(layers, cluster, (texts, texts), cross_entropy, adam(), rows=rows)))
    except ValueError as no:  # nothing fits, or no size divides
        return Answer(str(no), 1)


def links_of(asked: Namespace) -> Link | Nodes:
    inside = Link(asked.latency, asked.bandwidth)
    if asked.node is None:
        if asked.between is not None:
            raise ValueError("--between also needs --node, how many devices one has")
        return inside
    between = inside if asked.between is None else Link(asked.latency, asked.between)
    return Nodes(whole("plan", "--node", asked.node), inside, between)


def adam() -> MixedPrecision:
    return MixedPrecision(Adam())


def model_of(asked: Namespace) -> tuple[list[Layer], int]:
    """The layers, and how many tokens a text has."""
    given = {size: getattr(asked, size) for size in SIZES}
    if asked.model == "gpt":
        if missing := [f"--{size}" for size, value in given.items() if value is None]:
            raise ValueError(f"--model gpt also needs {', '.join(missing)}")
        return gpt(**given, dtype="float16"), asked.sequence
    if extra := [f"--{size}" for size in SIZES[:-1] if given[size] is not None]:
        raise ValueError(f"{asked.model} has sizes of its own: {', '.join(extra)} are those of --model gpt")
    known = KNOWN[asked.model]
    sequence = known.sequence if asked.sequence is None else asked.sequence
    return known.layers(), whole(asked.model, "--sequence", sequence, 1, known.sequence)
