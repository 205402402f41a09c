"""A fitted model in words, as text and as HTML.

`model` is a fitted estimator. A card reads attributes of the fit and computes nothing
that takes long.
"""

from html import escape

import numpy as np
from scipy.special import ndtri

from skswsgp.explain.columns import directions, kernel_by_name, names_of_columns


class Card(str):
    """A text with a representation in HTML, which notebooks show."""

    facts: tuple  # pairs of a name and what is said of it
    heads: tuple  # of the table of directions
    table: tuple  # its rows

    @classmethod
    def of(cls, facts, heads, table, rest):
        """Return the card of facts, and of a table with a line below."""
        width = max(len(name) for name, _ in facts) + 2
        lines = [f"{name:{width}}{value}" for name, value in facts]
        lines.append(f"{heads[0]}, {heads[1]}:")
        lines += [f"{step:>8}  {direction}" for step, direction in table]
        card = cls("\n".join([*lines, *rest]))
        card.facts, card.heads, card.table = tuple(facts), heads, (*table, *rest)
        return card

    def _repr_html_(self):
        facts = (
            f"<tr><th>{_html(n)}</th><td>{_html(v)}</td></tr>" for n, v in self.facts
        )
        heads = "".join(f"<th>{_html(head)}</th>" for head in self.heads)
        cells = (
            f'<tr><td colspan="2">{_html(row)}</td></tr>'
            if isinstance(row, str)
            else "<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in row) + "</tr>"
            for row in self.table
        )
        return (
            f"<table>{''.join(facts)}</table>"
            f"<table><tr>{heads}</tr>{''.join(cells)}</table>"
        )


def _html(text):
    return escape(str(text))


def describe(model, n_directions):
    """Return the `Card` of a model, with the directions that matter most."""
    return Card.of(facts_of(model), *directions(model, n_directions))


def facts_of(model):
    """Return pairs of a name and a value, in the order in which they are read."""
    D, points, H = model.n_features_in_, model.inducing_points_, model.n_neighbors_
    columns = "1 column" if D == 1 else f"{D} columns"
    found = [("model", f"{type(model).__name__}, {columns}, {model.likelihood_}")]
    if hasattr(model, "classes_"):
        found.append(("labels", names_of(model.classes_)))
    else:
        found.append(("y", scale_of_targets(model)))
    if model.x_transform_ is not None:
        found.append(("columns", f"on the scale {model.x_transform_.name}"))
    used = "all" if H == len(points) else f"the nearest {H}"
    means = "; means use all" if hasattr(model, "alpha_") and H < len(points) else ""
    found.append(("points", f"{len(points)}; a row uses {used}{means}"))
    found.append(("kernel", kernel_by_name(model)))
    if hasattr(model, "noise_variance_"):
        shares = numbers(model.noise_variance_)
        found.append(
            ("noise", f"{shares} of the variance of y, for a row of mean weight")
        )
    law = getattr(model, "predictive_law_", None)
    if law is not None:
        found.append(("law", law_in_words(law, names_of_columns(model))))
    left_out = getattr(model, "leave_one_out_", None)
    if left_out is not None:
        found.append(("left out", coverage_of(left_out)))
    warned = getattr(model, "_fit_warnings", ())
    return found + [("warning", text) for text in warned]


def names_of(labels):
    """Return the first labels, and how many there are."""
    shown = ", ".join(map(str, labels[:6]))
    rest = len(labels) - 6
    return shown if rest <= 0 else f"{shown} and {rest} more"


def scale_of_targets(model):
    """Return where targets lie, and on which scale they are modelled."""
    transform = model.y_transform_
    where = "" if transform is None else f", on the scale {transform.name}"
    if not np.any(model.y_mean_) and np.all(np.asarray(model.y_scale_) == 1.0):
        return f"as it is{where}"
    spread = numbers(model.y_scale_)
    return f"mean {numbers(model.y_mean_)}, deviation {spread}{where}"


def law_in_words(law, names):
    """Return the law of observations around the mean, a part for each output.

    `names` are those of the columns, along which deviations may change.
    """
    parts = []
    outputs = law.shapes, law.scale_range.T, law.waves
    for shape, (low, high), waves in zip(*outputs, strict=True):
        name = "Gaussian"
        if np.isfinite(shape.freedom):
            name = f"Student-t of {shape.freedom:.3g} degrees of freedom"
        name += ", reshaped by errors" if shape.tilt.any() else ""
        along = " and ".join(names[d] for d in np.unique(waves.places))
        along = f", along {along}" if along else ""
        low, high = f"{low:.2g}", f"{high:.2g}"
        times = low if low == high else f"{low} to {high}"
        parts.append(
            name if times == "1" else f"{name}, deviations times {times}{along}"
        )
    shares = np.zeros(1) if law.density is None else law.density.share
    near = f"; near targets have a share of {numbers(shares)}" if shares.any() else ""
    return "; ".join(parts) + near


def coverage_of(left_out):
    """Return how many training rows intervals hold that do not know them."""
    z = np.abs(left_out.z_score)
    held = {share: np.mean(z <= ndtri(0.5 + 0.5 * share)) for share in (0.5, 0.9)}
    parts = (f"{100 * share:.0f} % hold {100 * v:.1f} %" for share, v in held.items())
    rows = f"of {len(z)} training rows, each predicted without itself"
    return f"intervals of {', those of '.join(parts)} {rows}"


def numbers(values):
    """Return numbers with three digits, one for each output."""
    return ", ".join(f"{value:.3g}" for value in np.ravel(values))
