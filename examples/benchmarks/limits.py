"""Calls that may take some seconds of the processor, in processes of their own."""

import math
import resource
import signal
import time
from multiprocessing import get_context


class TooLongError(Exception):
    """A call has used up its seconds."""


def call(function, *args):
    """Return function(*args) of a forked process; raise what it raises.

    The function may call `allow`. A process costs some milliseconds, and has imported
    what this one has.
    """
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sender, function, args))
    child.start()
    sender.close()
    try:
        found, error = receiver.recv()
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            raise TooLongError("took too long") from None
        raise RuntimeError(f"the process ended with {child.exitcode}") from None
    child.join()
    if error is not None:
        raise RuntimeError(error)
    return found


def allow(seconds):
    """End this process when it has taken so many more seconds of the processor."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _send(sender, function, args):
    try:
        sender.send((function(*args), None))
    except Exception as error:
        sender.send((None, f"{type(error).__name__}: {error}".splitlines()[0]))
