"""Examples that hand a model to a library which others write."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import numpy as np
import pytest

from skswsgp import SWSGPRegressor

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 2))
    return X, np.sin(6.0 * X[:, 0]) + 0.1 * rng.normal(size=120)


def fitted(X, y):
    return SWSGPRegressor(learn_kernel=False, random_state=0).fit(X, y)


@pytest.fixture
def service(example, table):
    """Return a client of the service, and the model that it serves."""
    for package in ("fastapi", "httpx2"):
        pytest.importorskip(package, reason="install the extra `examples`")
    from fastapi.testclient import TestClient

    model = fitted(*table)
    with TestClient(example("serve").make_app(model)) as client:
        yield client, model


def test_a_service_answers_several_threads_at_once(service, table, monkeypatch):
    client, model = service
    expected = model.predict(table[0]), *model.predict_interval(table[0], 0.5)
    parts, predict = np.split(table[0], 8), SWSGPRegressor.predict_interval
    four = Barrier(4, timeout=60)  # breaks unless so many call at once

    def meet(self, *given):
        four.wait()
        return predict(self, *given)

    monkeypatch.setattr(SWSGPRegressor, "predict_interval", meet)

    def answer(rows):
        question = {"rows": rows.tolist(), "coverage": 0.5}
        return client.post("/predict", json=question).raise_for_status().json()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(answer, parts))
    for name, values in zip(("mean", "lower", "upper"), expected, strict=True):
        joined = np.concatenate([one[name] for one in found])
        np.testing.assert_allclose(joined, values, rtol=1e-8)
    assert not np.any([one["novel"] for one in found])


def test_a_service_learns_while_the_old_model_answers(service, table, monkeypatch):
    client, model = service
    far, new = (table[0][:30] + 4.0).tolist(), table[1][:30].tolist()
    learn, begun, go_on = SWSGPRegressor.partial_fit, Event(), Event()

    def wait(self, *given):
        begun.set()
        assert go_on.wait(60)
        return learn(self, *given)

    monkeypatch.setattr(SWSGPRegressor, "partial_fit", wait)

    def novel():
        return client.post("/predict", json={"rows": far[:5]}).json()["novel"]

    with ThreadPoolExecutor(1) as threads:
        taught = threads.submit(client.post, "/learn", json={"rows": far, "y": new})
        assert begun.wait(60)
        assert all(novel())
        go_on.set()
        assert taught.result().status_code == 204
    assert not any(novel())
    assert model.is_novel(far).all()  # the model of the caller stays as it was


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (
            {"rows": [[0.5, None]]},
            "X contains NaN in column 1, in 1 of 1 rows: expected",
        ),
        ({"rows": [[0.5]]}, "X has 1 features, but SWSGPRegressor is expecting 2"),
        (
            {"rows": [[0.5, 0.5]], "coverage": 90},
            "coverage=90.0: expected a number abov",
        ),
        ({"rows": []}, "at least 1 item"),
        ({"rows": [["a", 0.5]]}, "valid number"),
    ],
)
def test_a_service_refuses_in_words(question, sentence, service):
    answer = service[0].post("/predict", json=question)
    assert answer.status_code == 422
    assert sentence in str(answer.json()["detail"])


@pytest.mark.usefixtures("few_steps")
def test_botorch_optimises_with_draws_of_functions(example, table, monkeypatch):
    pytest.importorskip("botorch", reason="install the extra `bench`")
    import torch

    botorch, (X, _) = example("optimize_with_botorch"), table
    monkeypatch.setattr(botorch, "N_DRAWS", 2000)
    model = fitted(*table)
    posterior = botorch.Draws(model).posterior(torch.as_tensor(X).reshape(2, 60, 2))
    mean, variance = model.latent_mean_and_variance(X)
    error = np.abs(posterior.mean.numpy().ravel() - mean)
    assert np.all(error < 5.0 * np.sqrt(variance / 2000) + 1e-9)
    ratio = posterior.variance.numpy().ravel() / variance
    assert 0.9 < np.median(ratio) < 1.1
    sizes = {"N_FIRST": 20, "N_ROUNDS": 2, "BATCH": 2, "N_CANDIDATES": 40}
    for name, value in (sizes | {"N_DRAWS": 16}).items():
        monkeypatch.setattr(botorch, name, value)
    for choose in (botorch.by_expected_improvement, botorch.by_thompson_sampling):
        first, second = botorch.run(choose)
        assert 0.0 <= second <= first < botorch.MAXIMUM
