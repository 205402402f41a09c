"""What a description of a fitted model says, in text and in HTML."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF

from skswsgp import SWSGPClassifier, SWSGPRegressor


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
    assert found["kernel"] == str(model.kernel_)
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
    assert facts(model)["law"].count("deviations times") == 2


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
