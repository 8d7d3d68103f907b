"""Numbers as papers print them, with which lessons, figures and tests compare measurements.

Nothing here is computed; closed forms are in ``formulas``.
"""

from dataclasses import dataclass

from gpipe_sim.core.costs import Costs

Four = tuple[float, float, float, float]


@dataclass(frozen=True)
class ZeroBubbleRun:
    """One row of the zero-bubble paper's tables 9 (times, measured on its devices) and 5 (bubble rates).

    Times are those of one microbatch on one device. The paper names no unit; by their size they are
    milliseconds. ``bubble_rates`` maps our name of a schedule to the paper's rate, which is our span bubble.
    Qi, Wan, Huang and Lin 2024, arXiv:2401.10241.
    """

    model: str
    devices: int
    microbatches: int
    stages_per_device: int  #: of the interleaved schedule; the others have one
    forward: float
    input_grad: float  #: T_B in the paper
    weight_grad: float
    comm: float
    bubble_rates: dict[str, float]

    def costs(self, stages_per_device: int = 1) -> Costs:
        """The times of a stage if each device's part of the model is cut into ``stages_per_device``."""
        whole = Costs(self.forward, self.input_grad, self.weight_grad, comm=self.comm)
        return whole.per_stage(stages_per_device)


def _run(model: str, size: tuple[int, int, int], times: Four, rates: Four) -> ZeroBubbleRun:
    names = "OneFOneB", "Interleaved1F1B", "ZBH1", "ZBH2"
    return ZeroBubbleRun(model, *size, *times, dict(zip(names, rates, strict=True)))


#: The smallest and the second largest of the paper's four models, each with three numbers of microbatches.
ZERO_BUBBLE = (
    # model, (K, M, V), Table 9: T_F, T_B, T_W, T_comm, Table 5: 1F1B, 1F1B-I, ZB-H1, ZB-H2
    _run("1.5B", (8, 24, 3), (18.522, 18.086, 9.337, 0.601), (0.2431, 0.1055, 0.1585, 0.1083)),
    _run("1.5B", (8, 32, 3), (18.513, 18.086, 9.331, 0.626), (0.1985, 0.0818, 0.1242, 0.0837)),
    _run("1.5B", (8, 64, 3), (18.546, 18.097, 9.321, 0.762), (0.1240, 0.0443, 0.0674, 0.0444)),
    _run("14.6B", (16, 48, 3), (11.347, 11.248, 8.132, 0.377), (0.2552, 0.1104, 0.1397, 0.0672)),
    _run("14.6B", (16, 64, 3), (11.307, 11.254, 8.101, 0.379), (0.2082, 0.0852, 0.1088, 0.0516)),
    _run("14.6B", (16, 128, 3), (11.325, 11.308, 8.109, 0.378), (0.1251, 0.0445, 0.0576, 0.0266)),
)


@dataclass(frozen=True)
class GPipeDepth:
    """One column of GPipe's table 1, Transformer rows: the deepest model that fits TPUv3s of 16 GB each.

    ``parameter_memory`` and ``activation_memory`` (its peak) are GiB of all devices together. A parameter
    takes 12 bytes: its weight, its gradient and RMSProp's state, in 4-byte numbers. The models have 2,048
    features in networks of 8,192, 32 heads, 32k tokens, 1,024 places, and batches of 32. "Naive" is without
    GPipe. Huang et al. 2019, arXiv:1811.06965.
    """

    name: str
    devices: int
    blocks: int
    parameters: float
    parameter_memory: float
    activation_memory: float


#: The paper's two memory cells of Naive-1 are swapped: it prints 11.7G for parameters and 3.15G for
#: activations, but 282.2 million parameters of 12 bytes are 3.15 GiB. Here each is where it belongs.
GPIPE_DEPTHS = (
    GPipeDepth("Naive-1", 1, 3, 282.2e6, 3.15, 11.7),
    GPipeDepth("Pipeline-1", 1, 13, 785.8e6, 8.8, 6.4),
    GPipeDepth("Pipeline-8", 8, 103, 5.3e9, 59.5, 50.9),
    GPipeDepth("Pipeline-32", 32, 415, 21.0e9, 235.1, 199.9),
    GPipeDepth("Pipeline-128", 128, 1663, 83.9e9, 937.9, 796.1),
)
