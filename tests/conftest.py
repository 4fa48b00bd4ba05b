"""What tests of several folders use: the order of files, signals, the PostgreSQL server."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.store.postgres import Server, find_programs, running_server

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("search", max_examples=1_000, deadline=None, database=None)
# The same examples each time; `pytest --hypothesis-profile=search` looks for new ones.
settings.load_profile("repeatable")

LONG = ("tests/durable/test_kill.py", "tests/web/", "tests/surfaces/")
"""What takes longest begins first: a worker that began it last would keep the other one waiting."""


def pytest_configure() -> None:
    """Let signals do what they do in a terminal: in the background of a script some are ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, each still in one piece."""

    def place(item: pytest.Item) -> int:
        return next((n for n, name in enumerate(LONG) if item.nodeid.startswith(name)), len(LONG))

    items.sort(key=place)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One server for the whole session, started when a test first asks for it."""
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server programs (initdb, postgres) on this machine")
    with running_server(programs) as server:
        yield server
