"""whether an order can run, and if not, why

A file has a row of actions for each device, such as these two:
  0F0 0F1 0B0 0B1
  1F0 1B0 1F1 1B1
2F0 is stage 2, forward, microbatch 0; B is a backward, I and W its halves, R a recompute. A row may begin
with "device 0:", "rank 0:", or "device 0, stages 0 3:". Rows with sends and receives, such as 0SEND_F0 and
1RECV_F0, are the programs of devices. Commas make it a file as PyTorch's pipelining writes it. A row of
"-" reads stdin.

examples:
  gpipe-sim check order.txt
  gpipe-sim check programs.txt --sends blocking
  gpipe-sim check - < order.csv
"""

from argparse import ArgumentParser, Namespace

from gpipe_sim.command.answer import Answer, numbers
from gpipe_sim.command.orders import read_order, timed
from gpipe_sim.core.problems import SENDS


def add(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="with a row for each device; - reads stdin")
    parser.add_argument(
        "--sends",
        choices=SENDS,
        default=SENDS[0],
        help="buffered: a send ends at once; blocking: when the other device receives (default: %(default)s)",
    )


def answer(asked: Namespace) -> Answer:
    timeline = timed(read_order(asked.file), sends=asked.sends)
    return Answer(f"OK: it can run, with {asked.sends} sends\n{numbers(timeline)}")
