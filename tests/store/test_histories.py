"""Whatever histories the core can make, the store gives them back, cut at any row and still valid."""

from __future__ import annotations

import asyncio
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from sidequest.store import Store
from tests.core.builders import repeatable
from tests.core.histories import sessions
from tests.store.builders import a_session, new, problems, same, valid


def test_any_history_comes_back_and_is_valid_when_cut_anywhere(store_url):
    numbers = count(1)
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(store_url, env={}))

        async def there_and_back(history, cut, one_by_one):
            session = await a_session(store, session_id=f"s{next(numbers)}")
            rows = [new(f"m{n}", message) for n, message in enumerate(history, start=1)]
            for batch in [[row] for row in rows] if one_by_one else [rows]:
                await store.transcript.append(session, batch)
            assert same(valid(await store.transcript.history(session)), history)
            await store.sessions.truncate(session, f"m{cut}")
            valid(await store.transcript.history(session))

        @given(st.data())
        @repeatable(20)
        def check(data):
            history = data.draw(sessions())
            cut = data.draw(st.integers(1, len(history)))
            runner.run(there_and_back(history, cut, data.draw(st.booleans())))

        try:
            check()
            assert runner.run(problems(store)) == []
        finally:
            runner.run(store.close())
