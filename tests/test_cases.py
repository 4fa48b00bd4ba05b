"""Each acceptance case about lifecycle, models and contexts has a test named after it (specification 7)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = [
    f"{letter}{number}" for letter, last in (("L", 13), ("M", 8), ("X", 8)) for number in range(1, last + 1)
]


@pytest.mark.parametrize("case", CASES)
def test_it_has_a_test_of_its_name(case: str) -> None:
    named = re.compile(rf"def test_(?:[A-Z][0-9]+_)*{case}_")
    assert [path for path in HERE.rglob("test_*.py") if named.search(path.read_text(encoding="utf-8"))]
