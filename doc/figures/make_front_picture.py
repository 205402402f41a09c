"""Draw `h_within_m.png`, the picture of the front page of the site.

Two rows among M inducing points, each with its H nearest ones, and the covariance
matrix of all points, of which a row needs the H x H entries of its own points only.
Run ``python doc/figures/make_front_picture.py``; it needs matplotlib.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist

M, H = 60, 6
ROWS = np.array([[0.22, 0.68], [0.7, 0.27]])
COLORS = "#1f5fa8", "#c44e20"
GREY = "#b0b0b0"


def main():
    """Save the picture beside this file."""
    rng = np.random.default_rng(4)
    Z = rng.uniform(0.0, 1.0, (M, 2))
    Z = Z[np.argsort(Z[:, 0])]
    nearest = np.argsort(cdist(ROWS, Z), axis=1)[:, :H]
    K = np.exp(-0.5 * cdist(Z, Z, "sqeuclidean") / 0.2**2)

    figure, (points, matrix, own) = plt.subplots(
        1, 3, figsize=(8.4, 3.2), layout="constrained", width_ratios=[1.2, 1.2, 0.5]
    )
    points.plot(*Z.T, "o", color=GREY, markersize=4)
    matrix.imshow(np.where(K > 0.02, 1.0 - 0.35 * K, 1.0), cmap="gray", vmin=0, vmax=1)
    for row, color, chosen in zip(ROWS, COLORS, nearest, strict=True):
        for z in Z[chosen]:
            points.plot(*zip(row, z, strict=True), color=color, linewidth=1)
        points.plot(*Z[chosen].T, "o", color=color, markersize=6)
        points.plot(*row, "*", color=color, markersize=14, markeredgecolor="white")
        i, j = np.meshgrid(chosen, chosen)
        matrix.plot(i.ravel(), j.ravel(), "s", color=color, markersize=2.6)
    points.set_title(
        f"{M} inducing points; a row (star)\nsees its {H} nearest", fontsize=10
    )
    matrix.set_title(f"their covariance matrix K\nhas {M} x {M} entries", fontsize=10)

    own.set(xlim=(-0.5, H - 0.5), ylim=(2 * H + 1.5, -0.5), aspect="equal")
    for top, color, chosen in zip((0, H + 2), COLORS, nearest, strict=True):
        for i, j in np.ndindex(H, H):
            shade = 0.15 + 0.85 * K[chosen[i], chosen[j]]
            own.add_patch(
                plt.Rectangle((j - 0.5, top + i - 0.5), 1, 1, color=color, alpha=shade)
            )
    own.set_title(f"a row needs\n{H} x {H} of them", fontsize=10)
    for axes in (points, matrix, own):
        axes.set(xticks=[], yticks=[])
    own.axis("off")
    figure.savefig(Path(__file__).with_name("h_within_m.png"), dpi=130)


if __name__ == "__main__":
    main()
