"""The cases of matrices that are in the fast group of tests."""

from collections import Counter


def left_out(items):
    """Return the cases of tests marked `matrix` that the fast group does without."""
    matrices = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        is_case = "matrix" in marks and hasattr(item, "callspec")
        if is_case and not marks & {"slow", "full"}:
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [
        item
        for cases in matrices.values()
        for item in set(cases).difference(covering(cases))
    ]


def covering(cases):
    """Return few cases in which each value of each parameter occurs, in turn."""
    values = {item: values_of(item) for item in cases}
    unseen, uses, kept = set().union(*values.values()), Counter(), []
    while unseen:
        scores = [
            (len(unseen & values[item]), -sum(uses[value] for value in values[item]))
            for item in cases
        ]
        kept.append(cases[scores.index(max(scores))])
        unseen -= values[kept[-1]]
        uses.update(values[kept[-1]])
    return kept


def values_of(item):
    """Return the set of parameter values of a case, one entry for each `parametrize`.

    A fixture with parameters is an entry, too.
    """
    params, axes = item.callspec.params, []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        axes.append(names.split(", ") if isinstance(names, str) else names)
    fixtures = sorted(set(params).difference(*axes))
    axes += [[name] for name in fixtures]
    return {(*axis, *(id(params[name]) for name in axis)) for axis in axes}
