"""The callback protocol of scikit-learn 1.9, and nothing where it is not installed."""

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """Without callbacks there is nothing to support."""

    def with_callbacks(method):
        """Without callbacks a method is as it is."""
        return method


class FitTask:
    """The task tree of one fit: the fit itself, and one task an epoch.

    Parameters
    ----------
    estimator : estimator
        The estimator being fitted.
    max_iter : int
        Epochs at most.
    data : dict
        X, y and metadata that callbacks may ask for.
    """

    def __init__(self, estimator, max_iter, data):
        self.estimator = estimator
        self.data = data
        self.root = None
        if hasattr(estimator, "_init_callback_context"):
            self.root = estimator._init_callback_context(max_subtasks=max_iter)
            self.root.call_on_fit_task_begin(estimator=estimator, **data)

    def begin_epoch(self):
        """Announce an epoch."""
        if self.root is not None:
            self.epoch = self.root.subcontext(task_name="epoch")
            self.epoch.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def end_epoch(self, attributes):
        """Report an epoch; return whether a callback asks to stop.

        `attributes()` returns the fitted attributes as if fit had stopped here.
        """
        if self.root is None:
            return False
        return self.epoch.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=attributes, **self.data
        )

    def end(self):
        """Report the end of the fit, whose attributes are set by now."""
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.estimator, **self.data)
