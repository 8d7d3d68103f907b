"""What two drawn pictures must not say: times, and the last digits of a loss."""

import re

from gpipe_sim import GPipe, simulate
from gpipe_sim.course.pictures import falling, outlined


def test_an_outline_to_label_has_no_numbers_but_the_devices():
    words = re.findall(r"<text[^>]*>([^<]*)<", str(outlined(simulate(GPipe(4, 8)), "How long?")))
    assert words == ["How long?", *(f"device {k}" for k in range(4)), "work", "waiting"]


def test_a_falling_loss_is_the_same_whatever_its_last_digits():
    losses = [0.5, 0.25, 0.125]
    drawn = str(falling(losses, "Loss", "3 epochs"))
    assert 'points="40,40 340,140 640,190"' in drawn
    assert drawn == str(falling([loss * (1 + 1e-9) for loss in losses], "Loss", "3 epochs"))
