"""One server for the whole group, or one visible reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.server import LlamaServer, why_not

_skipped = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: runs against a real llama.cpp server")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[LlamaServer]:
    if reason := why_not():
        pytestconfig.stash[_skipped] = reason
        pytest.skip(reason)
    with LlamaServer(tmp_path_factory.mktemp("llama")) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say it also without `-rs`: a group that is skipped in silence is a group that nobody misses."""
    if reason := config.stash.get(_skipped, None):
        terminalreporter.write_line(f"tests/real was skipped: {reason}", yellow=True)
