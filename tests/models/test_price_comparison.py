"""What a model costs beside the session's: dearer, not dearer, or not known."""

from __future__ import annotations

import pytest

from sidequest.core.confirmation import Beside
from sidequest.models.bindings import ModelBinding
from sidequest.models.price_comparison import beside


def model(key: str, *prices: float | None) -> ModelBinding:
    provider, _, name = key.partition("/")
    given, taken = prices or (None, None)
    return ModelBinding(key, provider, name, provider, input_price=given, output_price=taken)


SESSION = model("a/session", 3, 15)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SESSION, Beside.NOT_MORE),
        (model("a/same", 3, 15), Beside.NOT_MORE),
        (model("a/less", 1, 5), Beside.NOT_MORE),
        (model("a/in", 3.1, 1), Beside.MORE),
        (model("a/out", 1, 15.1), Beside.MORE),
        (model("a/dark"), Beside.UNKNOWN),
        (model("a/half", 1, None), Beside.UNKNOWN),
        (model("offline/small"), Beside.NOT_MORE),
        (model("ollama/qwen"), Beside.NOT_MORE),
        (model("ollama/paid", 4, 4), Beside.MORE),
    ],
)
def test_either_price_that_is_higher_makes_a_model_dearer(other: ModelBinding, expected: Beside):
    assert beside(other, SESSION).beside is expected


def test_beside_a_session_without_a_known_price_only_what_is_free_is_certain():
    session = model("a/dark")
    assert beside(model("a/known", 1, 1), session).beside is Beside.UNKNOWN
    assert beside(model("offline/small"), session).beside is Beside.NOT_MORE
    assert beside(session, session).beside is Beside.NOT_MORE


def test_beside_a_session_that_costs_nothing_everything_paid_is_dearer():
    found = beside(model("a/known", 0.5, 2), model("ollama/qwen"))
    assert found.beside is Beside.MORE
    assert found.prices == "$0.5 and $2 for a million tokens in and out, the session's $0 and $0"
