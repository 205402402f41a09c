"""Pages of the user guide whose code runs as it stands."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "doc" / "user_guide"


@pytest.mark.parametrize("page", ["scikit_learn.md"])
@pytest.mark.usefixtures("few_steps")
def test_the_code_of_a_page_runs_in_its_order(page):
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", (GUIDE / page).read_text())
    assert blocks
    names = {}
    for block in blocks:
        exec(block, names)
