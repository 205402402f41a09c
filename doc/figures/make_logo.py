"""Draw the logo, `doc/_static/logo.svg`, and the card that links to the site show.

A row is joined to its nearest inducing points, with others farther away. Run ``python
doc/figures/make_logo.py``; it needs matplotlib.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

STATIC = Path(__file__).parents[1] / "_static"
ROW, NEAR, FAR = "#e8743b", "#3b8ad9", "#9aa3ad"  # seen on white and on black
RADII = {ROW: 7.4, NEAR: 5.6, FAR: 3.8}
SIDE, CENTER = 64.0, 32.0
# Angles and distances of points from the row, which lies at the center
NEAREST = [(-98, 16.5), (-25, 17.5), (45, 16.0), (115, 17.0), (187, 16.0)]
OTHERS = [(-138, 27.0), (-60, 27.5), (10, 28.0), (80, 27.5), (151, 28.0)]
CARD = 1200, 630  # pixels, as most pages that show cards ask for
LINES = (
    "Predictions with intervals that follow the errors,",
    "for tables of a few hundred to ten million rows",
)


def places(points):
    """Return x and y (n, 2) of points given by angle and distance."""
    angle, distance = (
        np.deg2rad([each[0] for each in points]),
        [each[1] for each in points],
    )
    return CENTER + np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.c_[distance]


def main():
    """Write both files."""
    dots = [(FAR, places(OTHERS)), (NEAR, places(NEAREST)), (ROW, places([(0, 0)]))]
    save_logo(dots)
    save_card(dots)


def save_logo(dots):
    """Write the logo as SVG."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE:g} {SIDE:g}">'
    ]
    ends = "".join(
        f"M{CENTER:g} {CENTER:g}L{x:.1f} {y:.1f}" for x, y in places(NEAREST)
    )
    lines.append(f'<path d="{ends}" stroke="{NEAR}" stroke-width="3"/>')
    for color, points in dots:
        shape = f'r="{RADII[color]}" fill="{color}"'
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" {shape}/>' for x, y in points]
    (STATIC / "logo.svg").write_text("\n".join([*lines, "</svg>", ""]))


def save_card(dots):
    """Write the card as PNG: the logo beside the first sentence of the site."""
    width, height = CARD
    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    scale, left, top = 5.2, 50.0, height / 2 - 5.2 * CENTER
    moved = [(color, scale * points + (left, top)) for color, points in dots]
    for end in moved[1][1]:
        axes.plot(*zip(moved[2][1][0], end, strict=True), color=NEAR, linewidth=11)
    for color, points in moved:
        for point in points:
            circle = plt.Circle(point, scale * RADII[color], color=color, zorder=3)
            axes.add_patch(circle)
    text = {"color": "#1b1f24", "verticalalignment": "center"}
    axes.text(430, 225, "skswsgp", fontsize=64, fontweight="bold", **text)
    for k, line in enumerate(LINES):
        axes.text(434, 335 + 48 * k, line, fontsize=21, **text)
    axes.text(
        434, 465, "scikit-learn estimators in Python", fontsize=21, color="#5b6470"
    )
    figure.savefig(STATIC / "card.png", dpi=100)


if __name__ == "__main__":
    main()
