"""The axes that displays draw in, and their colors."""

import numpy as np

# Colors that people of any color vision tell apart, by Okabe and Ito
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
COLORS = BLUE, VERMILLION, GREEN, "#CC79A7", "#E69F00", "#56B4E9"
CALIBRATED = "Calibrated"  # name of the line of a calibrated model


def set_axes(display, ax):
    """Set `ax_` and `figure_` of a display; `ax` None makes a figure."""
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError(
                f"{type(display).__name__} needs matplotlib, which is not installed: "
                "run `pip install matplotlib`."
            ) from error
        _, ax = pyplot.subplots(layout="constrained")
    display.ax_, display.figure_ = ax, ax.figure


def set_axes_of_calibration(display, ax, height):
    """Set the axes of a display, and draw the line of a calibrated model.

    It goes from (0, height) to (1, 1), and is drawn once.
    """
    set_axes(display, ax)
    if CALIBRATED not in display.ax_.get_legend_handles_labels()[1]:
        display.ax_.plot([0.0, 1.0], [height, 1.0], "k:", label=CALIBRATED)


def styled(usual, given):
    """Return arguments of a line by their full names, the given ones in first place."""
    from matplotlib import cbook, lines

    return usual | cbook.normalize_kwargs(given, lines.Line2D)


def drawn_rows(values, subsample):
    """Return the numbers of at most `subsample` rows, evenly spaced by their values."""
    order = np.argsort(values, kind="stable")
    if subsample is None or len(order) <= subsample:
        return order
    return order[np.linspace(0, len(order) - 1, subsample).round().astype(int)]
