"""What a description of a fitted model says, in text and in HTML."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared

from skswsgp import ExtrapolationWarning, SWSGPClassifier, SWSGPRegressor
from skswsgp.explain.columns import directions, kernel_in_words
from skswsgp.kernels import OnColumns


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 2))
    return X, np.sin(X[:, 0]) + 0.2 * rng.standard_normal(150)


def facts(model):
    return dict(model.describe().facts)


def test_a_description_says_what_was_learned(data):
    X, y = data
    model = SWSGPRegressor(random_state=0).fit(X, 3.0 + 100.0 * y)
    found = facts(model)
    assert found["model"] == "SWSGPRegressor, 2 columns, gaussian"
    assert found["y"] == f"mean {model.y_mean_:.3g}, deviation {model.y_scale_:.3g}"
    assert found["points"] == "150; a row uses all"
    assert found["kernel"].startswith(str(model.kernel_).partition("[")[0])
    assert "warning" not in found
    assert found["noise"].startswith(f"{model.noise_variance_:.3g} of the variance of")
    for share in (0.5, 0.9):
        inside = np.abs(model.leave_one_out_.z_score) <= norm.ppf(0.5 + share / 2)
        words = f"{100 * share:.0f} % hold {100 * inside.mean():.1f} %"
        assert words in found["left out"]
    assert "of 150 training rows" in found["left out"]
    text = model.describe()
    for name, value in found.items():
        assert any(
            line.split(maxsplit=name.count(" ") + 1)[-1] == value
            for line in text.splitlines()
            if line.startswith(name)
        )


def test_the_first_of_many_columns_are_named(data):
    kernel, names = RBF(np.arange(1.0, 31.0)), [f"x{d}" for d in range(30)]
    words = kernel_in_words(kernel, names)
    assert words.endswith("x8: 9, x9: 10, and 20 more])")
    model = SWSGPRegressor(learn_kernel=False).fit(data[0][:, :1], data[1])
    assert facts(model)["model"] == "SWSGPRegressor, 1 column, gaussian"


def test_a_description_names_few_neighbours_and_means_of_all_points(data):
    X, y = data
    options = {"n_inducing": 60, "n_neighbors": 10, "learn_kernel": False}
    few = SWSGPRegressor(RBF(), random_state=0, **options).fit(X, y)
    M = len(few.inducing_points_)
    assert facts(few)["points"] == f"{M}; a row uses the nearest 10"
    both = SWSGPRegressor(RBF(), random_state=0, learn_kernel=False, n_neighbors="all")
    both.fit(X, y).n_neighbors_ = 64
    assert facts(both)["points"] == "150; a row uses the nearest 64; means use all"


def test_a_description_of_skewed_targets_names_their_scale(data):
    X, y = data
    model = SWSGPRegressor(random_state=0).fit(X, np.exp(3.0 * y))
    assert facts(model)["y"].endswith(f", on the scale {model.y_transform_.name}")


@pytest.mark.parametrize(
    "likelihood", ["student_t", "negative_binomial", "heteroscedastic"]
)
def test_descriptions_of_other_likelihoods(data, likelihood, few_steps):
    X, y = data
    counts = np.random.default_rng(0).poisson(np.exp(y + 1.0))
    model = SWSGPRegressor(likelihood=likelihood, random_state=0).fit(X, counts)
    found = facts(model)
    assert found["model"].endswith(model.likelihood_)
    assert ("noise" in found) == hasattr(model, "noise_variance_")
    if likelihood == "negative_binomial":
        assert found["y"] == "as it is"


def test_two_outputs_have_two_numbers(data):
    X, y = data
    model = SWSGPRegressor(random_state=0).fit(X, np.column_stack([y, 10.0 * y]))
    first, second = facts(model)["noise"].split(" of ")[0].split(", ")
    assert [first, second] == [f"{v:.3g}" for v in model.noise_variance_]
    widths = facts(model)["law"].split("; ")
    assert len(widths) == 2
    for width, factor in zip(widths, model.predictive_law_.scale_range[0], strict=True):
        times = f"{factor:.2g}"  # the same everywhere
        assert width == (
            "Gaussian" if times == "1" else f"Gaussian, deviations times {times}"
        )


def test_a_description_names_the_columns_along_which_errors_grow():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.uniform(-1, 1, (300, 2)), columns=["dose", "age"])
    y = np.sin(3 * X.dose) + np.exp(2 * X.age - 2) * rng.standard_normal(300)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert facts(model)["law"].endswith(", along age")
    assert "along columns [1]; share" in repr(model.predictive_law_)


def test_a_description_of_classes_names_the_first_labels(data):
    X, y = data
    labels = np.array([*"abcdefgh"])[
        np.digitize(y, np.quantile(y, np.arange(1, 8) / 8))
    ]
    options = {"learn_kernel": False, "random_state": 0}
    model = SWSGPClassifier(RBF(), **options).fit(X, labels)
    found = facts(model)
    assert found["labels"] == "a, b, c, d, e, f and 2 more"
    assert "y" not in found and "noise" not in found


def test_a_description_names_the_columns_of_the_kernel(data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    frame = pandas.DataFrame(np.column_stack([X, X[:, 0] > 0]), columns=["a", "b", "c"])
    hours = OnColumns(ExpSineSquared(2.0, 3.0), "b")
    kernel = (RBF([0.5, 1.0, 2.0]) + hours) * DotProduct(1.5) ** 2
    options = {"learn_kernel": False, "x_transform": None}
    model = SWSGPRegressor(kernel, **options).fit(frame, y)
    rbf = "RBF(length_scale=[a: 0.5, b: 1, c: 2])"
    part = "OnColumns(ExpSineSquared(length_scale=2, periodicity=3), ['b'])"
    expected = f"({rbf} + {part}) * (DotProduct(sigma_0=1.5)) ** 2"
    assert facts(model)["kernel"] == expected
    inside = OnColumns(RBF([1.0, 2.0]), ["c", "a"])
    model = SWSGPRegressor(inside, **options).fit(frame, y)
    named = "OnColumns(RBF(length_scale=[c: 1, a: 2]), ['c', 'a'])"
    assert facts(model)["kernel"] == named
    model.linear_map_ = 2.0 * np.eye(3)  # columns of which the names do not tell
    assert "RBF(length_scale=[1, 2])" in facts(model)["kernel"]


def test_a_description_names_the_levels_that_a_kernel_reads(data):
    X, y = data
    kinds = np.arange(150) % 3
    columns = np.column_stack([X[:, 0], kinds])
    options = {"x_transform": "levels", "learn_map": False, "random_state": 0}
    model = SWSGPRegressor(**options).fit(columns, y + np.array([0.0, 3.0, 1.0])[kinds])
    names = ["x0", "x1", "x1=0", "x1=1", "x1=2"]
    lengths = model.kernel_.k2.length_scale
    named = ", ".join(f"{n}: {v:.3g}" for n, v in zip(names, lengths, strict=True))
    assert f"length_scale=[{named}]" in facts(model)["kernel"]


def test_a_description_lists_what_the_fit_warned_of(data):
    X, y = data
    model, match = SWSGPRegressor(random_state=0), "none of several outputs has noise"
    with pytest.warns(UserWarning, match=match):
        model.fit(X, np.sin(X))
    (text,) = [text for name, text in model.describe().facts if name == "warning"]
    assert text.startswith(match) and "single outputs are mostly closer" in text
    with pytest.warns(ExtrapolationWarning):
        model.predict(X + 1e6, return_std=True)
    assert facts(model)["warning"] == text
    assert "warning" not in facts(model.fit(X, y))


def test_equal_columns_are_listed_in_their_order(data):
    _, y = data
    X = np.repeat(np.random.default_rng(0).normal(size=(150, 1)), 4, axis=1)
    model = SWSGPRegressor(RBF(), learn_kernel=False, x_transform=None).fit(X, y)
    model.linear_map_ = np.full((4, 1), 0.5)
    ((_, direction),) = directions(model, 1)[1]
    assert direction == "+0.50 x0 +0.50 x1 +0.50 x2 +0.50 x3"


def test_notebooks_show_a_description_as_html(data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    frame = pandas.DataFrame(X, columns=["a<b", "c"])
    model = SWSGPRegressor(RBF([0.5, 1.0]), learn_kernel=False).fit(frame, y)
    card = model.describe(1)
    html = card._repr_html_()
    assert "a&lt;b" in html and "a<b" not in html
    assert html.count("<tr>") == html.count("</tr>") == len(card.facts) + 1 + 2
    assert "and 1 more of at most" in html
    assert isinstance(card, str) and "a<b" in card
