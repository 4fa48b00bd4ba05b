"""The 32-file job: a window four times too small, one fact per file, on its first and on its last line."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from sidequest.core.events import ContextCompacted
from sidequest.core.outcome import Status
from tests.support.delegating import Bench
from tests.support.fact_job import FactJob
from tests.support.provider import LoopbackProvider

WINDOW = 16_000
MAX_TOKENS_SENT = 240_000


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat_model", "responses_model", "anthropic_model"])
@pytest.mark.parametrize("last_line", [False, True], ids=["first-line", "last-line"])
def test_every_fact_of_32_files_is_reported(tmp_path: Path, last_line: bool, api: str) -> None:
    job = FactJob(tmp_path, last_line).write()
    bench = Bench(tmp_path)

    async def run() -> None:
        async with LoopbackProvider(job.script, window=WINDOW) as provider:
            model = getattr(provider, api)()
            outcome = await bench.outcome(model, job.task, window=WINDOW)
        assert outcome.status is Status.COMPLETED
        assert job.found(outcome.report) == 32
        assert provider.rejections == []
        assert sum(seen.tokens for seen in provider.requests) <= MAX_TOKENS_SENT
        answers = [exchange.answer for exchange in provider.exchanges]
        reads = Counter(str(call) for answer in answers for call in getattr(answer, "tool_calls", ()))
        assert len(reads) == 32
        assert set(reads.values()) == {1}
        assert outcome.compactions == len(bench.of(ContextCompacted)) > 2
        assert outcome.degradations == 0

    asyncio.run(run())
