"""How targets of a user and those of a likelihood are related: objects of arrays.

`RegressionTargets` know the scale of numbers, `ClassTargets` the labels. Both are made
from the rows of a first fit, or from the attributes of a fitted model, and encode other
rows alike.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skswsgp._kernel_search.kernel_choice import choose_targets
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows import statistics
from skswsgp._rows.checks import as_numbers, check_outputs, log_exposure, usable_weights
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.statistics import mean_and_scale, robust_mean_and_scale
from skswsgp._rows.table import require_targets
from skswsgp._rows.target_scale import SeenTargets, TargetScale, fit_transform
from skswsgp._solvers.exact_mean import scaled_variance
from skswsgp._solvers.progress import warn_caller


class RegressionTargets(NamedTuple):
    """Numbers, for a Gaussian process on their scale, or counts as they are."""

    likelihood: str
    scale: TargetScale

    @property
    def record(self):
        """The record of the likelihood."""
        return LIKELIHOODS[self.likelihood]

    @property
    def n_latent(self):
        """The number of latent functions, one for each output."""
        return int(np.size(self.scale.offset))

    @property
    def is_single(self):
        """Whether results leave out the axis of outputs."""
        return np.ndim(self.scale.offset) == 0

    def attributes(self):
        """Return the fitted attributes from which the same targets can be made."""
        scale = self.scale
        numbers = {"y_mean_": scale.offset, "y_scale_": scale.factor}
        return numbers | {"y_transform_": scale.transform, "_seen_targets": scale.seen}

    def encode(self, y, exposure=None):
        """Return targets as the record of the likelihood reads them, a row for each."""
        y = as_numbers(y)
        require_no_exposure(self.likelihood, exposure)
        check_outputs(y, self.scale.offset)
        columns = y.reshape(len(y), -1)
        if self.record.counts:
            require_counts(columns, self.likelihood)
            return np.column_stack([columns, log_exposure(exposure, len(y))])
        if self.scale.transform is not None:
            self.scale.transform.require_domain(columns)
        return self.scale.standardise(columns)

    def units(self, attributes):
        """Return (offset, factor), numbers or (Q,), to the units of reports of f."""
        if self.record.counts:
            return attributes.get("prior_mean_", 0.0), 1.0
        return self.scale.offset, self.scale.factor

    def log_density(self, mu, v, targets, attributes):
        """Return the log predictive density of encoded rows, in nats of the user's y.

        f has the moments mu and v (n, Q) under the model of fitted attributes.
        """
        if self.record.counts:
            return latent_log_density(self, mu, v, targets, attributes)
        numbers = map(attributes.get, ("noise_variance_", "likelihood_shape_"))
        density = self.record.log_density(mu, v, targets, *numbers)
        slopes = self.scale.log_slope(self.scale.restore(targets))
        return density + np.sum(np.broadcast_to(slopes, targets.shape), axis=1)

    def stratify(self, y, fraction):
        """Return None: a random part of the rows has to keep no proportions."""


class ClassTargets(NamedTuple):
    """Labels, which the likelihood knows by their numbers."""

    likelihood: str
    classes: np.ndarray  # (n_classes,) sorted
    dtype: str  # of the prior means

    @property
    def record(self):
        """The record of the likelihood."""
        return LIKELIHOODS[self.likelihood]

    @property
    def n_latent(self):
        """The number of latent functions."""
        return self.record.count_latent(len(self.classes))

    @property
    def is_single(self):
        """Whether results leave out the axis of latent functions."""
        return self.n_latent == 1

    def attributes(self):
        """Return the fitted attributes from which the same targets can be made."""
        return {"classes_": self.classes}

    def encode(self, y, exposure=None):
        """Return the numbers of labels as the record of the likelihood reads them."""
        known = dict.fromkeys(self.classes.tolist())
        for label in filter(lambda one: one not in known, distinct_labels(y).tolist()):
            raise ValueError(
                f"y holds the label {label!r}: expected one of "
                f"{', '.join(map(repr, known))}, the classes of the first fit."
            )
        numbers = np.searchsorted(self.classes, y)
        return self.record.encode(numbers, len(self.classes))

    def units(self, attributes):
        """Return (offset, factor), numbers or (Q,), to the units of reports of f."""
        return np.asarray(attributes.get("prior_mean_", 0.0), self.dtype), 1.0

    def log_density(self, mu, v, targets, attributes):
        """Return the log probability of encoded rows, see `RegressionTargets`."""
        return latent_log_density(self, mu, v, targets, attributes)

    def stratify(self, y, fraction):
        """Return the labels if a random part of the rows can have all of them."""
        _, counts = np.unique(y, return_counts=True)
        smaller = int(min(fraction, 1.0 - fraction) * len(y))
        return y if counts.min() > 1 and smaller >= len(counts) else None


def latent_log_density(targets, mu, v, encoded, attributes):
    """Return the log density of rows whose law is a function of f alone, in nats."""
    offset, factor = targets.units(attributes)
    moments = offset + factor * mu, factor**2 * scaled_variance(v, attributes)
    numbers = map(attributes.get, ("noise_variance_", "likelihood_shape_"))
    return targets.record.log_density(*moments, encoded, *numbers)


# --- numbers


def learn_targets(rows, name, settings, *, normalize, free):
    """Return the `RegressionTargets` of the rows of a first fit.

    `name` is the parameter `y_transform`. "auto" may choose a scale of the names that
    are `free`, and leaves y as it is without any. `normalize` says whether y is
    standardised.
    """
    y, record = as_numbers(rows.y), settings.likelihood_record
    if record.counts:
        if name not in ("auto", None):
            raise ValueError(
                f"y_transform={name!r} with likelihood={settings.likelihood!r}: "
                "expected None or 'auto', for counts keep their scale; use "
                "likelihood='gaussian' for transformed targets."
            )
        scale = TargetScale(*unit_scale(y), None)
        return RegressionTargets(settings.likelihood, scale)

    if len(y) == 1 and normalize:
        warn_caller(
            "y has one row: expected two or more, for one does not tell how far others "
            "lie from it; deviations and intervals are those of a y that varies by 1."
        )
    how = y, rows.weight, record, normalize
    scales = [fit_scale(None if name == "auto" else name, *how)]
    learned = settings.kernel is None and settings.learn_kernel
    if name == "auto" and free and record.conjugate and normalize and learned:
        names = [one for one in free if one != "log" or (y > 0.0).all()]
        scales += [fit_scale(one, *how) for one in names]
        columns = y.reshape(len(y), -1).astype(np.float64)
        data = TrainingRows(rows.X, columns, rows.weight, rows.numbers)
        n_latent = columns.shape[1]
        scales = [choose_targets(data, settings._replace(n_latent=n_latent), scales)]
    return RegressionTargets(settings.likelihood, scales[0])


def see_targets(columns, transform):
    """Return the `SeenTargets` of y (n, Q).

    Positive numbers may be so by chance. They are not where several are zero, where the
    transformation is flatter at large ones, or where so many lie above twice the median
    that of a symmetric law some would lie below zero (sign test).
    """
    low, middle, high = np.quantile(columns, (0.0, 0.5, 1.0), axis=0)
    bounded = np.sum(columns == 0.0, axis=0) > 1
    bounded |= 0.5 ** np.sum(columns > 2.0 * middle, axis=0) < 1e-3
    if transform is not None:
        bounded |= transform.log_slope(high) < transform.log_slope(low)
    least = np.where(bounded & (low >= 0.0), 0.0, -np.inf)
    widest = np.full(low.shape, statistics.width_of_next(max(len(columns), 2)))
    return SeenTargets(low, high, least, widest)


def fit_scale(name, y, weight, record, normalize):
    """Return the `TargetScale` of y for the name of a transformation, or None."""
    columns, transform = y.reshape(len(y), -1), None
    if name is not None:
        transform = fit_transform(name, columns, weight)
        transform.require_domain(columns)
        y = transform.forward(columns).reshape(y.shape)
    seen = see_targets(columns, transform)
    if not normalize:
        return TargetScale(*unit_scale(y), transform, seen)
    moments = mean_and_scale if record.conjugate else robust_mean_and_scale
    return TargetScale(*moments(y, weight), transform, seen)


def unit_scale(y):
    """Return means of zero and deviations of one for each output of y."""
    return np.zeros(y.shape[1:])[()], np.ones(y.shape[1:])[()]


def require_no_exposure(likelihood, exposure):
    """Raise ValueError if there is an exposure, but targets are no counts."""
    if exposure is not None and not LIKELIHOODS[likelihood].counts:
        raise ValueError(
            f"exposure came with likelihood={likelihood!r}: expected none, "
            "for only counts have rates; use 'poisson' or 'negative_binomial', or "
            "leave it out."
        )


# --- labels


def link_of(likelihood, n_classes):
    """Return the name of the likelihood for so many classes, of "auto" or a name."""
    if likelihood == "auto":
        return "bernoulli" if n_classes == 2 else "softmax"
    if n_classes > 2 and not LIKELIHOODS[likelihood].joint:
        raise ValueError(
            f"likelihood={likelihood!r} with {n_classes} classes: expected two; use "
            "'softmax' or 'auto'."
        )
    return likelihood


def distinct_labels(y):
    """Return the sorted distinct labels; raise ValueError if they are no labels."""
    require_targets(y)
    try:
        kind = type_of_target(y)
        if kind != "continuous":
            check_classification_targets(y)
            return np.unique(y)
    except (TypeError, ValueError):
        types = sorted({type(label).__name__ for label in np.ravel(y)})
        if len(types) == 1:
            raise
        raise ValueError(
            f"labels of the types {', '.join(types)}: expected labels of one type; "
            "convert them, for example with np.asarray(y, dtype=str)."
        ) from None
    raise ValueError(
        f"Unknown label type: {kind}: y holds numbers such as {np.min(y)!s}, which "
        "are no labels; use SWSGPRegressor for numbers, or np.digitize for classes."
    )


def require_two(classes):
    """Raise ValueError unless there are two classes or more."""
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]}), apart from rows of weight zero: "
            "expected two or more; a stream may name all in partial_fit(classes=...)."
        )


def require_labels(class_weight, classes):
    """Raise ValueError if a dict of weights of classes names a label that is none."""
    known = classes.tolist()
    unknown = [one for one in class_weight or () if one not in known]
    if unknown:
        raise ValueError(
            f"class_weight has a weight for {unknown[0]!r}: expected labels of "
            f"y, such as {known[0]!r}; leave it out."
        )


def weigh_classes(class_weight, y, weight, dtype):
    """Return weights (n,) of labels y times those of classes, see `usable_weights`.

    `class_weight` is the parameter of the classifier, None for equal weights.
    """
    if class_weight is None:
        return weight
    classes = distinct_labels(y)
    codes = np.searchsorted(classes, y)
    if class_weight == "balanced":
        counts = np.bincount(codes, weight)
        present = np.maximum(counts, np.finfo(float).tiny)
        factors = counts.sum() / (np.count_nonzero(counts) * present)
    else:
        given = [class_weight.get(one, 1.0) for one in classes.tolist()]
        for label, factor in zip(classes.tolist(), given, strict=True):
            if not (isinstance(factor, Real) and 0.0 <= factor < np.inf):
                raise ValueError(
                    f"class_weight gives {label!r} {factor!r}: expected a finite "
                    "number of at least 0."
                )
        factors = np.array(given, dtype=np.float64)
    return usable_weights(weight * factors[codes], dtype, "class_weight")


def require_counts(y, likelihood):
    """Return y; raise ValueError unless all values are non-negative whole numbers."""
    wrong = (y < 0.0) | (y != np.floor(y))
    if np.any(wrong):
        raise ValueError(
            f"y holds {y[wrong].flat[0]:g} with likelihood={likelihood!r}: expected "
            "counts, which are whole numbers and not negative; pass the exposure of "
            "rates as exposure, or use likelihood='gaussian' for other numbers."
        )
    return y
