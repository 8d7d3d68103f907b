"""What the how-to page on a schedule of one's own shows and does not run when the site is built."""

from pathlib import Path

import pytest
from typed import blocks

torch = pytest.importorskip("torch")

from torch_modules import ran  # noqa: E402

import gpipe_sim as gp  # noqa: E402

PAGE = (Path(__file__).parents[1] / "docs/howto/own_schedule.md").read_text()
ENGINE, LOADS = (code for _, code in blocks(PAGE, "python"))


def cells() -> str:
    """The code that the site runs, without the chart."""
    return "\n".join(code for _, code in blocks(PAGE, r"\{code-cell\}") if "gp.draw" not in code)


#: The names that the page leaves to its reader, around its lines; then the gradients against autograd's.
RANK = """\
import copy, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, device, loss = dist.get_rank(), torch.device("cpu"), torch.nn.functional.cross_entropy
modules = gp.torch_backend.to_torch(gp.split(layers, stages=8))
module, whole = modules[rank], torch.nn.Sequential(*copy.deepcopy(modules))
x, y = map(torch.from_numpy, batch)
{lines}
loss(whole(x), y).backward()
pairs = list(zip(module.parameters(), whole[rank].parameters(), strict=True))
assert pairs and all(torch.allclose(a.grad, b.grad, rtol=0, atol=1e-12) for a, b in pairs)
if rank == 7:
    assert len(losses) == 32
    pipeline._dump_csv("rows.csv")
dist.destroy_process_group()
"""


def test_the_engine_gives_one_devices_gradients(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(f"{cells()}\n{ENGINE}", {})
    assert float(capsys.readouterr().out.split()[-2]) < 1e-12


def test_the_lines_load_the_file_and_train_on_eight_processes(tmp_path):
    for rank in map(str, range(8)):  # a folder each: eight processes that write one file read halves of it
        (tmp_path / rank).mkdir()
    own_folder = f"import os\nos.chdir(os.path.join({str(tmp_path)!r}, os.environ['RANK']))"
    script = f"{own_folder}\n{cells()}\n{RANK.format(lines=LOADS)}"
    found = ran(script, tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8")
    assert found.returncode == 0, found.stderr
    (rows, own) = ((tmp_path / "7" / name).read_text() for name in ("rows.csv", "mine.csv"))
    gp.check(rows)  # what the page on a hang says of such a file
    assert "SEND" in rows
    assert gp.device_programs(rows).schedule.actions == gp.export.from_torch_csv(own).actions
