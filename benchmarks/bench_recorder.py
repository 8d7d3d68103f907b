"""What recording costs: around functions that do nothing, called as Megatron calls its own.

The target is one per cent of an action of a millisecond, the shortest that a training run has.
"""

from collections.abc import Callable
from types import SimpleNamespace

from benchmarks.timing import medians, report
from gpipe_sim.traces import Recorder

ACTIONS = 20_000
SHORTEST = 1000  #: microseconds


def forward_step(
    forward_step_func, data_iterator, model, num_microbatches, input_tensor, forward_data_store, config,
    cp_group_size, collect_non_loss_data=False, checkpoint_activations_microbatch=None,
    is_first_microbatch=False, current_microbatch=None, vp_stage=None, is_last_stage=True,
):  # fmt: skip
    return [object()], 0


def backward_step(input_tensor, output_tensor, output_tensor_grad, model_type, config):
    return None


def loop(functions: SimpleNamespace) -> Callable[[], None]:
    def run() -> None:
        for m in range(ACTIONS // 2):
            told = {"cp_group_size": 1, "current_microbatch": m, "vp_stage": 0, "is_last_stage": False}
            output, _ = functions.forward_step(None, None, None, 8, None, [], None, **told)
            functions.backward_step(None, output, None, None, None)

    return run


def run() -> bool:
    plain, recorded = (SimpleNamespace(forward_step=forward_step, backward_step=backward_step) for _ in "ab")
    with Recorder(rank=0, devices=4).wrapped(recorded):
        without, within = medians(loop(plain), loop(recorded))
    each = (within - without) / ACTIONS * 1e6
    return report("Recorder, of an action of 1 ms", 100 * each / SHORTEST, "%", 1)


if __name__ == "__main__":
    run()
