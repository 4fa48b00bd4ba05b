"""One size rule for every tool result: head and tail stay, the whole is in the scratch folder."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, CachePoint, TextContent, ToolReturn

from sidequest.core.tokens import estimate_text
from sidequest.runtime.results import MIN_RESULT_TOKENS, bound_result, bound_value, result_limit
from sidequest.runtime.workspace import Workspace
from tests.core.builders import image, repeatable
from tests.support.delegating import Bench
from tests.support.scripted_model import Asked, ScriptedModel, calling
from tests.support.team import Team, worker

LINES = "\n".join(["FIRST LINE", *(f"line {n} of a long result" for n in range(3_000)), "LAST LINE"])
GIANT = "x=1;" * 60_000


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "project").mkdir()
    (tmp_path / "scratch").mkdir()
    return Workspace(tmp_path / "project", tmp_path / "scratch")


class TestBounding:
    def test_one_result_takes_half_of_what_a_request_has_room_for(self) -> None:
        assert result_limit(8_000, 1_000) == 3_500
        assert result_limit(1_000, 990) == MIN_RESULT_TOKENS

    def test_what_fits_is_not_touched(self) -> None:
        assert bound_result("short", 10, "t") == "short"
        assert bound_result("x" * 40, 10, "t") == "x" * 40

    def test_head_and_tail_stay_and_the_notice_has_the_numbers(self) -> None:
        bounded = bound_result(LINES, 1_000, "t")
        assert estimate_text(bounded) <= 1_000
        assert bounded.startswith("FIRST LINE\n")
        assert bounded.endswith("LAST LINE")
        assert f"{len(LINES)} characters in 3002 lines" in bounded
        assert "Ask for less" in bounded

    def test_most_of_the_room_is_used(self) -> None:
        assert estimate_text(bound_result(LINES, 1_000, "t")) > 900

    @given(text=st.text(min_size=1, max_size=3_000), limit=st.integers(MIN_RESULT_TOKENS, 400))
    @repeatable(60)
    def test_any_text_ends_below_the_limit(self, text: str, limit: int) -> None:
        assert estimate_text(bound_result(text * 3, limit, "t")) <= limit

    @pytest.mark.parametrize("text", [GIANT, "世界" * 20_000, "🙂" * 20_000, "QUJD" * 20_000])
    def test_one_giant_line_is_cut_like_any_other(self, text: str) -> None:
        bounded = bound_result(text, 500, "t")
        assert estimate_text(bounded) <= 500
        assert bounded.startswith(text[:30])
        assert bounded.endswith(text[-30:])


class TestValues:
    def test_a_large_structure_is_bounded_as_the_json_that_is_sent(self) -> None:
        rows = [{"name": f"row {n}", "value": n} for n in range(2_000)]
        bounded = bound_value(rows, 400, "t")
        assert isinstance(bounded, str)
        assert estimate_text(bounded) <= 400
        assert bounded.startswith('[{"name":"row 0"')

    @pytest.mark.parametrize("value", [None, 7, ["a", "b"], {"a": 1}, ToolReturn({"a": 1}, metadata=1)])
    def test_a_small_value_keeps_its_type(self, value: Any) -> None:
        assert bound_value(value, 200, "t") == value

    def test_the_text_of_a_tool_return_is_bounded_and_its_metadata_stays(self) -> None:
        bounded = bound_value(ToolReturn(LINES, metadata={"rows": 3}), 500, "t")
        assert estimate_text(bounded.return_value) <= 500
        assert bounded.metadata == {"rows": 3}

    @pytest.mark.parametrize("media_type", ["text/plain", "application/json", "text/csv"])
    def test_a_file_of_text_is_bounded_like_text(self, media_type: str, workspace: Workspace) -> None:
        bounded = bound_value(BinaryContent(LINES.encode(), media_type=media_type), 500, "t", workspace.spill)
        assert estimate_text(bounded) <= 500
        assert bounded.startswith("FIRST LINE")
        assert bounded.endswith("LAST LINE")
        assert "The whole result is in" in bounded

    def test_a_small_file_of_text_stays_a_file(self) -> None:
        value = [BinaryContent(b"a,b", media_type="text/csv"), "rows"]
        assert bound_value(value, 200, "t") is value

    def test_texts_of_one_result_are_bounded_together_and_an_image_stays(self) -> None:
        picture, file = image(), BinaryContent(LINES.encode(), media_type="text/plain")
        text, kept = bound_value([file, picture, {"rows": LINES}], 500, "t")
        assert estimate_text(text) <= 500
        assert text.startswith("FIRST LINE")
        assert kept is picture

    def test_what_a_tool_returns_beside_its_value_is_bounded_too(self) -> None:
        file = BinaryContent(LINES.encode(), media_type="text/plain")
        for content in (LINES, [file], (TextContent(LINES),), [LINES, CachePoint()]):
            bounded = bound_value(ToolReturn(LINES, content=content), 1_000, "t")
            assert isinstance(bounded.content, str)
            assert bounded.content.endswith("LAST LINE")
            assert estimate_text(bounded.return_value) + estimate_text(bounded.content) <= 1_200
        picture = [image()]
        assert bound_value(ToolReturn("see", content=picture), 200, "t").content is picture

    def test_an_image_is_left_alone(self) -> None:
        value = ["a picture", BinaryContent(b"\x89PNG" * 10_000, media_type="image/png")]
        assert bound_value(value, 200, "t") is value


class TestScratch:
    def test_the_whole_result_is_in_the_file_that_the_notice_names(self, workspace: Workspace) -> None:
        bounded = bound_result(LINES, 500, "Grep-call_1", workspace.spill)
        found = re.search(r"The whole result is in (\S+): read a slice", bounded)
        assert found is not None
        assert Path(found[1]).read_text() == LINES
        slice_ = asyncio.run(workspace.read(found[1], offset=3_000, limit=2))
        assert "LAST LINE" in str(slice_)
        assert "LAST LINE" in asyncio.run(workspace.grep("LAST", found[1]))

    def test_a_giant_line_can_be_read_in_slices(self, workspace: Workspace) -> None:
        path = workspace.spill("Bash-1", GIANT + "NEEDLE")
        assert path is not None
        assert Path(path).read_text().replace("\n", "") == GIANT + "NEEDLE"
        last = Path(path).read_text().count("\n")
        assert "NEEDLE" in str(asyncio.run(workspace.read(path, offset=last, limit=1)))

    def test_no_earlier_result_is_overwritten(self, workspace: Workspace) -> None:
        """Local servers number their calls afresh at each turn, and siblings share the folder."""
        paths = [workspace.spill("Read-call_0", text) for text in ("one", "two", "three")]
        assert [Path(path or "").read_text() for path in paths] == ["one", "two", "three"]

    def test_names_cannot_leave_the_folder(self, workspace: Workspace) -> None:
        path = workspace.spill("../../etc/passwd\0" + "x" * 500, "text")
        assert path is not None
        assert Path(path).parent == workspace.scratch

    def test_without_a_folder_the_notice_asks_for_less(self, tmp_path: Path) -> None:
        workspace = Workspace(tmp_path)
        assert workspace.spill("t", "text") is None
        assert "Ask for less" in bound_result(LINES, 500, "t", workspace.spill)

    def test_a_folder_that_is_gone_does_not_end_a_run(self, workspace: Workspace) -> None:
        assert workspace.scratch is not None
        workspace.scratch.rmdir()
        assert workspace.spill("t", "text") is None


class TestInARun:
    def test_a_text_file_that_a_tool_returns_does_not_fill_the_window(self) -> None:
        def export() -> BinaryContent:
            """Export everything."""
            return BinaryContent(LINES.encode(), media_type="text/csv")

        model = ScriptedModel(calling(("export", {})), "Done.")
        outcome = asyncio.run(Bench().outcome(model, tools=[export], window=8_000))
        assert (outcome.report, outcome.compactions, outcome.degradations) == ("Done.", 0, 0)

    def test_a_delegate_finds_the_rest_of_a_result_that_was_cut(self, workspace: Workspace) -> None:
        def export() -> str:
            """Export everything."""
            return LINES

        def read_the_rest(asked: Asked) -> Any:
            found = re.search(r"whole result is in (\S+): ", asked.results[0])
            assert found is not None
            return calling(("Read", {"path": found[1], "offset": 3_000, "limit": 9}))

        async def case() -> str:
            model = ScriptedModel(calling(("export", {})), read_the_rest, lambda asked: asked.results[-1])
            team = Team(
                model,
                [worker(tools=("export", "Read"))],
                window=8_000,
                workspace=workspace,
                tools=[export],
            )
            return (await team.outcome()).report

        assert "LAST LINE" in asyncio.run(case())

    @pytest.mark.parametrize("failure", [ToolFailed, ModelRetry])
    def test_what_a_failed_tool_says_is_bounded_too(
        self, workspace: Workspace, failure: type[Exception]
    ) -> None:
        """The output of a command that ran out of time may be as large as any."""

        def build() -> str:
            """Build everything."""
            raise failure(LINES)

        async def case() -> str:
            model = ScriptedModel(calling(("build", {})), lambda asked: asked.results[0])
            definitions = [worker(tools=("build",))]
            team = Team(model, definitions, window=8_000, workspace=workspace, tools=[build])
            outcome = await team.outcome()
            assert (outcome.compactions, outcome.degradations) == (0, 0)
            return outcome.report

        report = asyncio.run(case())
        assert "FIRST LINE" in report
        assert "LAST LINE" in report
        assert "The whole result is in" in report

    def test_results_of_one_message_that_fill_the_window_together_do_not_overflow(self) -> None:
        def huge(key: str) -> str:
            """Fetch what is stored under a key."""
            return f"{key} " + LINES

        model = ScriptedModel(calling(*[("huge", {"key": key}) for key in "abcdef"]), "Done.")
        outcome = asyncio.run(Bench().outcome(model, tools=[huge], window=8_000))
        assert (outcome.report, outcome.compactions) == ("Done.", 1)
        assert outcome.tool_calls == 6
