"""What the places of a digit take of each other: the shares of two heads, in a reader that has been trained.

The reader of lesson 16 on one device, four epochs; its first block, and a digit that it has not seen.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpipe_sim as gp
from figures._page import claim, page
from gpipe_sim.drawing.palette import INK, PAPER
from gpipe_sim.drawing.plots.style import LABEL_SIZE
from gpipe_sim.transformers import AdamW, LayerNorm, Positions, SequenceMean, TransformerBlock

SIDE, FEATURES, HEADS, EPOCHS, DIGIT = 8, 32, 4, 4, 1  #: the digit's number among the new ones
SHOWN = (0, 1)  #: heads
TOLERANCE = {"shares": 0.02}


def data() -> dict:
    """``digit``: its rows of pixels; ``shares``: of each head shown, a row for each place.

    Training amplifies how sums are rounded, so the shares of another processor may be a little off.
    """
    x, y, x_new, y_new = gp.digits()
    sequences = x.reshape(-1, SIDE, SIDE), y, x_new.reshape(-1, SIDE, SIDE), y_new
    layers, adam = reader(), AdamW(2e-3, weight_decay=0.1)
    gp.core.train_single_device(
        layers, sequences, optimizer=adam, loss=gp.cross_entropy, epochs=EPOCHS, batch_size=64, report=None
    )
    digit = sequences[2][DIGIT]
    shares = np.round(shares_of(layers, digit[None])[list(SHOWN)], 3)
    return {
        "digit": digit.tolist(),
        "is": int(y_new[DIGIT]),
        "shares": shares.tolist(),
        "tolerance": TOLERANCE,
    }


def reader() -> list[gp.core.Layer]:
    rng = np.random.default_rng(0)
    return [
        gp.core.Linear(SIDE, FEATURES, rng=rng),
        Positions(SIDE, FEATURES, rng=rng),
        *(TransformerBlock(FEATURES, HEADS, rng=rng) for _ in range(4)),
        LayerNorm(FEATURES),
        SequenceMean(),
        gp.core.Linear(FEATURES, 10, rng=rng),
    ]


def shares_of(layers: list[gp.core.Layer], x: np.ndarray) -> np.ndarray:
    """(heads, places, places): of the first block, for the first sample."""
    for layer in layers[:2]:
        x, _ = layer.forward(x, gp.core.Context())
    normal, attention = layers[2].layers[0].layers[:2]
    x, _ = normal.forward(x, gp.core.Context())
    _, (_, _, (shares, *_), _) = attention.forward(x, gp.core.Context())
    return shares[0]


def draw(data: dict) -> Figure:
    figure, axes = page(3.2, columns=1 + len(data["shares"]))
    _grid(axes[0], data["digit"], f"A digit: its {SIDE} rows are {SIDE} places")
    axes[0].set_ylabel("place", fontsize=LABEL_SIZE)
    for ax, head, shares in zip(axes[1:], SHOWN, data["shares"], strict=True):
        _grid(ax, shares, f"Head {head} looks most at place {np.mean(shares, axis=0).argmax()}")
        for i, j in np.ndindex(SIDE, SIDE):
            if (share := shares[i][j]) >= 0.25:
                on = PAPER if share > np.max(shares) / 2 else INK
                ax.annotate(f"{share:.1f}", (j, i), ha="center", va="center", fontsize=LABEL_SIZE, color=on)
        ax.set_xlabel("takes this share of place", fontsize=LABEL_SIZE)
        ax.set_ylabel("place", fontsize=LABEL_SIZE)
    return figure


def _grid(ax: Axes, rows: list, words: str) -> None:
    ax.imshow(rows, cmap="Greys", vmin=0, vmax=float(np.max(rows)))
    ax.set_xticks(range(SIDE))
    ax.set_yticks(range(SIDE))
    ax.tick_params(labelsize=LABEL_SIZE, length=0, labelcolor=INK)
    claim(ax, words)
