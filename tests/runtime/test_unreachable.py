"""A server that cannot be reached: its address and the cause are said, and a dead local one costs seconds."""

from __future__ import annotations

import itertools

import pytest

from sidequest.core.errors import ErrorCode
from sidequest.core.provider_errors import Kind, Meaning
from sidequest.core.recovery import NextModel, Recovery, Wait
from sidequest.runtime.unreachable import unreachable


def behind(*causes: BaseException) -> BaseException:
    for outer, inner in itertools.pairwise(causes):
        outer.__cause__ = inner
    return causes[0]


class ConnectError(Exception):
    pass


REFUSED = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")


@pytest.mark.parametrize(
    ("address", "here"),
    [("http://127.0.0.1:1/v1/", True), ("http://localhost:1/v1", True), ("http://10.0.0.9:1/v1", False)],
)
def test_address_and_cause_are_one_sentence(address: str, here: bool) -> None:
    group = ExceptionGroup("multiple connection attempts failed", [REFUSED])
    found = unreachable(
        behind(RuntimeError("Connection error."), ConnectError(), OSError("All"), group), address
    )
    assert found is not None
    assert found.message == f"{address.rstrip('/')} cannot be reached: connection refused."
    assert found.nobody_listens is here


def test_nothing_secret_of_the_address_is_shown() -> None:
    found = unreachable(REFUSED, "https://me:secret@host/v1?key=secret")
    assert found is not None
    assert found.message == "https://host/v1 cannot be reached: connection refused."


def test_a_connection_that_broke_later_is_something_else() -> None:
    assert unreachable(ConnectionResetError(104, "reset"), "http://127.0.0.1:1") is None


def test_a_refusal_of_this_machine_is_tried_three_times_in_all() -> None:
    meaning = Meaning(Kind.NETWORK, ErrorCode.NETWORK_ERROR, True, nobody_listens=True)
    recovery = Recovery()
    assert [recovery.decide(meaning) for _ in range(3)] == [Wait(1.0), Wait(2.0), NextModel()]
