"""A comparison as one picture of four parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyattnorg.comparison.quantities import QUANTITIES, SHARES, quantile_function
from pyattnorg.pictures import _bare, _plain

if TYPE_CHECKING:
    from pyattnorg.comparison.result import Comparison


def draw_comparison(comparison: Comparison, *, ax: Any = None) -> Any:
    """Decay, quantities with intervals, heads, distances; on four Axes, or new ones.

    Raises
    ------
    ValueError
        Not four of them.
    """
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError("matplotlib is needed to draw: pip install 'pyattnorg[viz]'") from None
        ax = pyplot.subplots(2, 2, figsize=(11.0, 8.5), layout="constrained")[1]
    axes = np.asarray(ax, object).reshape(-1)
    if len(axes) != 4:
        raise ValueError(f"ax: got {len(axes)} Axes, expected four: decay, quantities, heads, distances")
    draw_errors(comparison, axes[0])
    draw_quantities(comparison, axes[1])
    (draw_heads if comparison.joint is None else draw_joint)(comparison, axes[2])
    draw_distances(comparison, axes[3])
    return axes


def draw_errors(comparison: Comparison, ax: Any) -> None:
    """Relative error against the share of coefficients kept; the null's dashed."""
    for i, p in enumerate(comparison.portraits):
        seen = np.prod(comparison.size) * SHARES >= 1
        ax.plot(100 * SHARES[seen], p.errors[seen], color=f"C{i}", label=_plain(p.name, 32))
        ax.plot(100 * SHARES[seen], p.null_errors[seen], color=f"C{i}", linestyle="--", linewidth=0.8, alpha=0.7)
    ax.set(xscale="log", xlabel="coefficients kept, %", ylabel="relative error", title="decay (dashed: null)")
    ax.legend(frameon=False, fontsize=8)
    _bare(ax, "top", "right")


def draw_quantities(comparison: Comparison, ax: Any) -> None:
    """Contrasts with the null in their units, with intervals; an arrow says which way is better organised."""
    counted = [i for i, quantity in enumerate(QUANTITIES) if quantity.unit > 0]
    n = len(comparison.portraits)
    for j, p in enumerate(comparison.portraits):
        for row, i in enumerate(counted):
            unit = QUANTITIES[i].unit
            middle, low, high = (x / unit for x in (p.contrasts[i], p.low[i], p.high[i]))
            y = row + 0.6 * ((j + 0.5) / n - 0.5)  # what is NaN is not drawn
            ax.plot([low, high], [y, y], color=f"C{j}", linewidth=1.4)
            ax.plot([middle], [y], "o", color=f"C{j}", markersize=4)
    arrow = {"lower": "\N{LEFTWARDS ARROW} ", "higher": "\N{RIGHTWARDS ARROW} ", "": ""}
    names = [arrow[QUANTITIES[i].better] + QUANTITIES[i].name for i in counted]
    ax.axvline(0, color="0.7", linewidth=0.8)
    ax.set_yticks(range(len(counted)), names)
    ax.set(ylim=(len(counted) - 0.5, -0.5), xlabel="contrast with the null, in units", title="quantities")
    _bare(ax, "top", "right")


def draw_heads(comparison: Comparison, ax: Any) -> None:
    """Quantiles of the heads' entropies over the nulls'."""
    for i, p in enumerate(comparison.portraits):
        heads = p.heads[np.isfinite(p.heads)]
        if len(heads):
            curve = quantile_function(heads)
            ax.plot((np.arange(len(curve)) + 0.5) / len(curve), np.exp(curve), color=f"C{i}")
    ax.set(xlabel="share of heads", ylabel="entropy over the null's", title="heads")
    _bare(ax, "top", "right")


def draw_joint(comparison: Comparison, ax: Any) -> None:
    """All heads in the first two coordinates of the joint diffusion map."""
    joint = comparison.joint
    assert joint is not None
    xy = joint.coordinates
    y = xy[:, 1] if xy.shape[1] > 1 else np.zeros(len(xy))
    marks = "os^Dv<>p"
    for i in range(len(comparison.portraits)):
        of = joint.network == i
        ax.plot(xy[of, 0], y[of], marks[i % len(marks)], color=f"C{i}", markersize=4, alpha=0.75)
    ax.set(xlabel="diffusion coordinate 1", ylabel="diffusion coordinate 2", title="heads, embedded together")
    _bare(ax, "top", "right")


def draw_distances(comparison: Comparison, ax: Any) -> None:
    """Matrix of distances; a star where p <= .05."""
    d, names = comparison.distances, [_plain(name) for name in comparison.names]
    image = ax.imshow(d, cmap="viridis", vmin=0, vmax=max(float(d.max()), 1.0))
    for (a, b), pair in comparison.pairs.items():
        star = "*" if pair.chance.distance_p is not None and pair.chance.distance_p <= 0.05 else ""
        for i, j in ((a, b), (b, a)):
            ax.text(
                j, i, f"{d[i, j]:.2f}{star}", ha="center", va="center", fontsize=8, color="white", backgroundcolor="0.2"
            )
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
    ax.set_title("distance (*: p \N{LESS-THAN OR EQUAL TO} .05)")
