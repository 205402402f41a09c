"""Pages of the user guide whose code runs as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest

GUIDE = Path(__file__).parents[1] / "doc" / "user_guide"


def run_code(page):
    """Run the code of a page in its order, and return the names it leaves."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", (GUIDE / page).read_text())
    assert blocks
    names = {}
    for block in blocks:
        exec(block, names)
    return names


@pytest.mark.usefixtures("few_steps")
def test_the_page_on_scikit_learn_says_what_happens():
    """It fits some thirty models of four kinds, for several seconds."""
    names = run_code("scikit_learn.md")
    assert names["quantiles"].shape == (len(names["y"]) - 300, 3)
    scores = names["scores"]
    assert set(scores) == {"ours", "exact", "linear", "boosting"}
    for found in scores.values():
        for name in names["names"]:
            assert np.isfinite(found[f"test_{name}"]).all()
    assert np.mean(scores["ours"]["test_neg_crps"]) > np.mean(
        scores["boosting"]["test_neg_crps"]
    )
    shares, relevance = names["shares"], names["relevance"]
    assert list(shares) == ["city", "size", "remainder"]
    assert shares["city"] == relevance[:3].sum() > 0.1  # three words
    assert shares["size"] == relevance[3] > 0.5
    assert sum(shares.values()) == pytest.approx(1.0)
