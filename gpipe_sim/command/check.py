"""whether an order can run, and if not, why

A file has a row of actions for each device, such as order.txt:
  0F0 0F1 0B0 0B1
  1F0 1B0 1F1 1B1
2F0 is stage 2, forward, microbatch 0; B is a backward, I and W its halves, R a recompute. A row may begin
with "rank 0:" or "device 0:", or with "device 0, stages 0 3:"; unless rows say which stages they hold, device
s mod K holds stage s, with K devices. With commas it is read as PyTorch's pipelining writes it, order.csv:
  0F0,0F1,0B0,0B1
  1F0,1B0,1F1,1B1
With sends and receives the rows are the devices' programs, programs.txt:
  0F0 0SEND_F0 0RECV_B0 0B0
  1RECV_F0 1F0 1B0 1SEND_B0
What gp.export.to_json wrote of a schedule or a timeline is read, too.

examples:
  gpipe-sim check order.txt
  gpipe-sim check programs.txt --sends blocking
  gpipe-sim check - < order.csv
"""

from argparse import ArgumentParser, Namespace

from gpipe_sim.command.answer import Answer, numbers
from gpipe_sim.command.orders import read_order, timed
from gpipe_sim.core.problems import SENDS
from gpipe_sim.core.schedule import Schedule
from gpipe_sim.export.recognize import recognize


def add(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="with a row for each device; - reads stdin")
    parser.add_argument(
        "--sends",
        choices=SENDS,
        default=SENDS[0],
        help="buffered: a send ends at once; blocking: when the other device receives (default: %(default)s)",
    )


def answer(asked: Namespace) -> Answer:
    order = read_order(asked.file)
    timeline = timed(order, sends=asked.sends)
    known = recognize(order if isinstance(order, Schedule) else order.schedule)
    return Answer(f"OK with {asked.sends} sends; {known}\n{numbers(timeline)}")
