"""A fan-out that is stopped at any instant: all settle at once, and no process of it is left."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from sidequest.core.outcome import Status
from sidequest.runtime.workspace import Workspace
from tests.support.scripted_model import Asked, Step, calling
from tests.support.scripted_model import ScriptedModel as Model
from tests.support.team import Team, worker

PROC = Path("/proc")
WIDTH, INSTANTS, SPREAD_S, LIMIT_S = 4, 100, 0.06, 2.0
LONGEST_SPREAD_S = 2.0


def left(mark: str) -> list[str]:
    """Return the command lines of live processes that carry `mark`."""
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


@pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    ("command", "instants"),
    [
        ("sh -c 'sleep {0} & sleep {0}' & sleep {0}", INSTANTS),
        ("sleep {0} >/dev/null 2>&1 & echo it goes on", INSTANTS // 3),
        ("(setsid sleep {0}; :) & set -m; sleep {0} & sleep {0}", INSTANTS // 3),
    ],
    ids=["at work", "left running", "of other groups"],
)
def test_stopped_at_random_instants_everything_settles_and_no_process_is_left(
    tmp_path: Path, command: str, instants: int
) -> None:
    chance, working = random.Random(20_261_130), list[bool]()

    async def once(mark: str, instant: float) -> None:
        def step(asked: Asked) -> Step:
            if asked.results and "goes on" not in asked.results[-1]:
                return "Done."
            return calling(("Bash", {"command": command.format(mark)}))

        team = Team(
            Model(step, repeat=True), [worker(tools=("Bash",))], workspace=Workspace(tmp_path), tools=()
        )
        records = [team.start() for _ in range(WIDTH)]
        await asyncio.sleep(instant)
        working.append(bool(left(mark)))
        before = time.monotonic()
        await team.delegations.stop()
        assert time.monotonic() - before < LIMIT_S
        assert {record.status for record in records} == {Status.STOPPED}
        assert team.delegations.records.running() == []

    async def case() -> None:
        spread = SPREAD_S
        for number in range(instants):
            mark = f"9{chance.randrange(10**6):06}.{number:03}"
            await once(mark, chance.random() * spread)
            # On a slow machine commands begin later: then so do the instants.
            spread = spread * 0.9 if working[-1] else min(spread * 1.1, LONGEST_SPREAD_S)
            deadline = time.monotonic() + LIMIT_S
            while left(mark) and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes tell no event
                await asyncio.sleep(0.01)
            assert left(mark) == []

    asyncio.run(case())
    assert sum(working) > instants // 5, "some of the instants must find commands at work"
    assert not all(working), "and some must come before"
