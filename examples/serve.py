"""How is a model served on the web, and taught meanwhile?

FastAPI runs handlers that are no coroutines in threads, and a fitted model may predict
in several of them at once. A chunk of observations teaches a copy, which then takes the
place of the model. `python examples/serve.py` serves a model of the diabetes data on
port 8000, where `/docs` has a form for each request. In a container it must listen at
all addresses: `python examples/serve.py 0.0.0.0`. It needs `pip install fastapi
uvicorn`.
"""

import copy
import sys
import threading
from typing import Annotated

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sklearn.datasets import load_diabetes

from skswsgp import SWSGPRegressor

Rows = Annotated[list[list[float | None]], Field(min_length=1, max_length=10_000)]


class Question(BaseModel):
    rows: Rows
    coverage: float = 0.9


class Answer(BaseModel):
    mean: list[float]
    lower: list[float]  # ends of the intervals
    upper: list[float]
    novel: list[bool]  # rows of a kind that training has not shown


class Observations(BaseModel):
    rows: Rows
    y: list[float]


def make_app(model):
    """Return an application that serves a fitted model."""
    model.set_params(n_jobs=1)  # the threads are those of requests
    model.predict_interval(np.zeros((1, model.n_features_in_)))  # reads compiled code
    app, one_writer = FastAPI(title="skswsgp"), threading.Lock()
    app.state.model = model

    @app.exception_handler(ValueError)
    def refuse(request: Request, error: ValueError):
        return JSONResponse({"detail": str(error)}, status_code=422)

    @app.post("/predict")
    def predict(question: Question) -> Answer:
        model = app.state.model  # the same for all of the answer
        lower, upper = model.predict_interval(question.rows, question.coverage)
        mean, novel = model.predict(question.rows), model.is_novel(question.rows)
        return Answer(mean=mean, lower=lower, upper=upper, novel=novel)

    @app.post("/learn", status_code=204)
    def learn(seen: Observations) -> None:
        with one_writer:  # other threads predict by the model as it was
            taught = copy.deepcopy(app.state.model)
            app.state.model = taught.partial_fit(seen.rows, seen.y)

    return app


if __name__ == "__main__":
    import uvicorn

    X, y = load_diabetes(return_X_y=True)
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    app = make_app(SWSGPRegressor(random_state=0).fit(X, y))
    uvicorn.run(app, host=host, port=8000)
