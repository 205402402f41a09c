"""The display of a fit shows its losses and scores of held-out rows."""

import numpy as np
import pytest
from helpers import ADAM, labels_of, make
from sklearn.linear_model import BayesianRidge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_models import TINY, small_data

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.displays import TrainingDisplay


def test_losses_and_scores_of_adam(pyplot):
    X, y = small_data()
    model = make(SWSGPRegressor, **(TINY | ADAM), early_stopping=True)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    display = TrainingDisplay.from_estimator(pipeline, linewidth=3.0)
    model = pipeline[-1]
    epochs = np.arange(1, len(model.loss_curve_) + 1)
    assert len(epochs) > 1
    for line, values in (
        (display.loss_line_, model.loss_curve_),
        (display.score_line_, model.validation_scores_),
    ):
        np.testing.assert_array_equal(line.get_xdata(), epochs)
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert display.loss_line_.get_linewidth() == 3.0
    best = 1 + np.argmax(model.validation_scores_)
    assert list(display.kept_line_.get_xdata()) == [best, best]
    assert display.ax_.get_xlabel() == "Epoch"
    assert display.ax_.get_ylabel() == "Training loss (nats per row)"
    assert display.score_ax_.get_ylabel() == "Score of held-out rows (nats per row)"
    assert display.score_ax_.get_shared_x_axes().joined(display.ax_, display.score_ax_)
    assert labels_of(display) == [
        "SWSGPRegressor, training",
        "SWSGPRegressor, held-out rows",
        f"kept: epoch {best}",
    ]


@pytest.mark.usefixtures("few_steps")
def test_rounds_of_the_natural_solver(pyplot):
    X, y = small_data()
    model = SWSGPClassifier(n_inducing=10, n_neighbors=4, random_state=0).fit(X, y > 0)
    display = TrainingDisplay.from_estimator(model, name="labels")
    np.testing.assert_array_equal(display.loss_line_.get_ydata(), model.loss_curve_)
    assert display.ax_.get_xlabel() == "Round"
    assert labels_of(display) == ["labels, training"]
    assert display.score_ax_ is display.score_line_ is display.kept_line_ is None


def test_losses_of_a_network_have_no_unit(pyplot, line):
    how = {"hidden_layer_sizes": 4, "early_stopping": True, "tol": 1e6}
    model = MLPRegressor(**how).fit(*line)
    display = TrainingDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.loss_line_.get_ydata(), model.loss_curve_)
    assert display.ax_.get_ylabel() == "Training loss"
    assert display.score_ax_.get_ylabel() == "Score of held-out rows"


def test_an_estimator_without_losses_is_refused(line):
    match = "^BayesianRidge has no losses in `loss_curve_`: expected an estimator that"
    with pytest.raises(TypeError, match=match):
        TrainingDisplay.from_estimator(BayesianRidge().fit(*line))


def test_labels_of_both_axes_lie_inside_of_the_figure(pyplot):
    display = TrainingDisplay([3.0, 2.0, 1.0], [1e5, 2e5, 3e5]).plot()
    display.figure_.draw_without_rendering()
    label = display.score_ax_.yaxis.label.get_window_extent()
    assert label.x1 <= display.figure_.bbox.x1


def test_short_names_of_arguments_are_taken(pyplot):
    line = TrainingDisplay([3.0, 2.0]).plot(c="red", ls=":", ms=9.0).loss_line_
    found = line.get_color(), line.get_linestyle(), line.get_markersize()
    assert found == ("red", ":", 9.0)
