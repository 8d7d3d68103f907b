import numpy as np
import pytest

from gpipe_sim import digits
from gpipe_sim.dataset import digit_images


def test_the_file_has_1797_digits_of_8_by_8_pixels_from_0_to_16():
    images, labels = digit_images()
    assert images.shape == (1797, 8, 8)
    assert labels.shape == (1797,)
    assert (images.min(), images.max()) == (0, 16)
    assert labels[:10].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert images[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0], "a zero"
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_a_fifth_is_held_out_and_no_digit_is_lost_or_in_both():
    data = digits()
    assert [array.shape for array in data] == [(1438, 64), (1438,), (359, 64), (359,)]
    images, labels = digit_images()
    everything = np.concatenate([data.x, data.x_held_out]) * 16
    given = np.column_stack([everything, np.concatenate([data.y, data.y_held_out])])
    filed = np.column_stack([images.reshape(1797, 64), labels])
    assert (np.unique(given, axis=0) == np.unique(filed, axis=0)).all()
    assert sorted(map(tuple, given)) == sorted(map(tuple, filed))


def test_pixels_go_from_0_to_1_and_labels_are_class_numbers():
    data = digits(held_out=0.5)
    assert (data.x.min(), data.x.max()) == (0, 1)
    assert data.x.dtype == np.float64
    assert data.y.dtype == np.int64
    assert digits(dtype=np.float32).x_held_out.dtype == np.float32


def test_the_seed_fixes_the_shuffle():
    first, again, other = digits(seed=1), digits(seed=1), digits(seed=2)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first.x != other.x).any()


def test_the_shuffle_mixes_the_writers():
    """In the file the digits come writer by writer; every class is in both parts in like shares."""
    data = digits()
    assert digits(seed=0).y[:20].tolist() != digit_images()[1][:20].tolist()
    shares = np.bincount(data.y_held_out) / np.bincount(np.concatenate([data.y, data.y_held_out]))
    assert shares.min() > 0.1
    assert shares.max() < 0.3


# Bad input


@pytest.mark.parametrize("held_out", [0, 1, -0.2, 1.5, float("nan"), 1e-4, 0.9999])
def test_a_share_held_out_that_cannot_be_is_refused(held_out):
    with pytest.raises(ValueError, match=rf"held_out.* \(got {held_out}\)"):
        digits(held_out=held_out)


def test_a_dtype_without_fractions_is_refused():
    with pytest.raises(ValueError, match=r"digits needs a floating dtype \(got int64\)"):
        digits(dtype=np.int64)
