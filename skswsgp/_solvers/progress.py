"""The course of a fit: its stages, losses, when to stop, the learning rate."""

import math
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from contextvars import ContextVar

from numba.core import event

# What a fit goes through, some fits not through all of it, in this order
STAGES = (
    "scales of columns and targets",
    "kernel",
    "inducing variables",
    "exact means",
    "variances",
    "predictive law",
)

HEARD = ContextVar("HEARD")  # the list of messages that a fit has warned of


class StageLines:
    """One printed line for each stage of a fit, which begins as the stage begins.

    With `verbose` above 1 each round has a line too. Outside of the main thread, where
    other fits may print at the same time, a line is printed when it is complete. What a
    stage warns of is `heard`.
    """

    def __init__(self, verbose):
        self.verbose = int(verbose)
        self.at_once = threading.current_thread() is threading.main_thread()
        self.pending, self.heard = "", []  # what is not printed yet, and warnings

    @contextmanager
    def stage(self, name):
        """Print the name of a stage, what it compiles, and its seconds."""
        token = HEARD.set(self.heard)
        started, compiled = time.perf_counter(), Compilations(self)
        self.say(f"{name} ...")
        try:
            with event.install_listener("numba:compile", compiled):
                yield
            seconds = time.perf_counter() - started
            self.say(f"{compiled.told()} {seconds:.1f} s")
        finally:
            HEARD.reset(token)
            self.say("\n", ends=True)

    def say(self, text, ends=False):
        """Add text to the line of the stage; print a line that ends in any thread."""
        self.pending += text if self.verbose else ""
        if self.pending and (ends or self.at_once):
            print(self.pending, end="", flush=True)
            self.pending = ""

    def after_round(self, history, unit, most):
        """Report a round, the last of a `History`, which may have `most`."""
        if self.verbose > 1:
            number = f"{unit} {len(history.losses)}/{most}"
            self.say(f"\n  {number}: {last_scores(history)}")

    def after_rounds(self, history, unit):
        """Report what the rounds of a `History` have reached."""
        n = len(history.losses)
        if self.verbose == 1 and n:
            units = unit if n == 1 else f"{unit}s"
            self.say(f" {last_scores(history)} after {n} {units},")


class RowsRead:
    """Says in the line of a stage how fast it reads its rows, and when it will end.

    It speaks after `first` seconds, and whenever twice as many have gone by. A solver
    that takes steps reads all rows so many `times` at most. Others read them once, and
    their inducing points after them, and may go on without either.
    """

    first = 5.0

    def __init__(self, lines, n_rows, times=1):
        self.lines, self.n_rows, self.n_read = lines, times * n_rows, 0
        self.how = "of this pass" if times == 1 else "at most"
        self.began, self.next = time.perf_counter(), self.first

    def __call__(self, n):
        """Take note that n more rows are next; threads may do so at once."""
        seconds = time.perf_counter() - self.began
        if self.next <= seconds and 0 < self.n_read < self.n_rows:
            self.next, speed = 2.0 * seconds, self.n_read / seconds
            left = f"{(self.n_rows - self.n_read) / speed:.0f} s left {self.how}"
            digits = 0 if speed > 10.0 else 2
            self.lines.say(f" {speed:,.{digits}f} rows a second, {left} ...")
        self.n_read += n


def last_scores(history):
    """Return loss and held-out score of the last round of a `History`."""
    said = f"loss {history.losses[-1]:.5f}"
    if history.scores:
        said += f", held-out log density {history.scores[-1]:.5f}"
    return said


class Compilations(event.Listener):
    """Says in the line of a stage what Numba compiles for it, with the seconds.

    Other fits may compile at the same time, in threads of other names.
    """

    def __init__(self, lines):
        self.lines, self.seconds, self.begun = lines, {}, []
        self.own = threading.current_thread().name

    def on_start(self, event):
        """Take note that a compilation begins, perhaps within another one."""
        if threading.current_thread().name == self.own:
            if not self.begun and not self.seconds:
                self.lines.say(" compiling, once on a machine ...")
            self.begun.append(time.perf_counter())

    def on_end(self, event):
        """Take note that a compilation has ended."""
        if threading.current_thread().name == self.own and self.begun:
            seconds = time.perf_counter() - self.begun.pop()
            if not self.begun:  # what Python called, with all that this calls
                name = event.data["dispatcher"].py_func.__name__
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def told(self):
        """Return in words what was compiled, the longest first, or nothing."""
        if not self.seconds:
            return ""
        longest = sorted(self.seconds, key=self.seconds.get)[:-4:-1]
        parts = ", ".join(f"{name} {self.seconds[name]:.1f} s" for name in longest)
        total = f"{len(self.seconds)} in {sum(self.seconds.values()):.1f} s"
        return f" compiled {total} (longest: {parts}),"


class History:
    """Losses and scores of the rounds so far, and whether to stop."""

    def __init__(self, tol, n_iter_no_change):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.losses = []
        self.bounds = []
        self.scores = []
        self.best = math.inf
        self.since_best = 0

    def add(self, loss, bound, score):
        """Record a round; return whether it is the best so far."""
        self.losses.append(loss)
        self.bounds.append(bound)
        if score is not None:
            self.scores.append(score)
        value = loss if score is None else -score
        improved = value < self.best
        self.since_best = 0 if value < self.best - self.tol else self.since_best + 1
        self.best = min(self.best, value)
        return improved

    @property
    def stalled(self):
        """Whether no round has improved by tol for n_iter_no_change rounds."""
        return self.since_best >= self.n_iter_no_change

    def attributes(self):
        """Return the fitted attributes that describe the rounds."""
        return {
            "loss_curve_": list(self.losses),
            "validation_scores_": list(self.scores) or None,
            "n_iter_": len(self.losses),
        }


def half_cosine(step, steps=1.0):
    """Return a weight that falls along half a cosine from 1 to 0 in some steps."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps))


def warn_caller(message, category=UserWarning):
    """Warn at the line of the user that called this package; a fit takes note."""
    HEARD.get([]).append(message)
    level, frame = 2, sys._getframe(1)
    inside = ("skswsgp.", "sklearn.", "contextlib")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(inside):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
