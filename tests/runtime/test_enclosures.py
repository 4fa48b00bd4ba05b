"""Case X8: attachments and snippets of independent delegations, read by the rules of the parent."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.context_modes import ContextMode
from sidequest.core.enclosures import MAX_ENCLOSED_CHARS, Snippet
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.events import DelegationStarted
from sidequest.core.permissions import DenyRules, Mode
from sidequest.core.tokens import estimate_text
from sidequest.runtime.permissions import Answer, Question
from sidequest.runtime.session import Session
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import helper, session, told


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("TEXT OF A\n")
    (tmp_path / "outside.txt").write_text("TEXT FROM OUTSIDE\n")
    return folder


@dataclass
class Case:
    """A parent that delegates once, with `arguments` beside agent and task."""

    root: Path
    arguments: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    answer: Answer | None = None
    """What a person says to each question; None when nobody is there."""
    asked: list[Question] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        task = {"agent": "helper", "task": "Look.", **self.arguments}
        self.parent = ScriptedModel(calling(("Task", task)), "Waiting.", "Done.")
        self.child = ScriptedModel("Seen.")

    def run(self) -> str:
        """Return what Task said."""

        async def case() -> None:
            async with session(self.root, self.parent, self.child, **self.options) as opened:
                self._answering(opened)
                await opened.prompt("Delegate.")
                self.started = told(opened, DelegationStarted)

        asyncio.run(case())
        return self.parent.asked[1].results[0]

    @property
    def brief(self) -> str:
        (brief,) = self.child.asked[0].marked_texts("brief")
        return brief

    def _answering(self, opened: Session) -> None:
        questions = opened.rights.questions
        questions.no_surface_wait_s = 0.01
        if self.answer is None:
            return

        def changed() -> None:
            head = questions.head
            if head is not None and head not in self.asked:
                self.asked.append(head)
                asyncio.get_running_loop().call_soon(questions.answer, head.id, self.answer)

        questions.surface(changed)


ASK = {"permission_mode": Mode.ASK}


def test_X8_an_independent_delegate_gets_attachments_and_snippets_in_its_brief(root: Path) -> None:
    snippet = {"name": "error", "text": "BOOM"}
    case = Case(root, {"attachments": ["a.txt"], "snippets": [snippet]})
    case.run()
    assert case.brief.startswith("Look.\n")
    assert '<attachment name="a.txt">\nTEXT OF A\n' in case.brief
    assert '<snippet name="error">\nBOOM\n</snippet>' in case.brief
    (started,) = case.started
    assert started.task == "Look.", "screens show the task alone"


@pytest.mark.parametrize("more", [{"attachments": ["a.txt"]}, {"snippets": [{"name": "n", "text": "t"}]}])
@pytest.mark.parametrize(
    ("mode", "said"),
    [({"context": "fork"}, "together with context fork"), ({"resume": "an-id"}, "together with resume")],
)
def test_X8_with_fork_or_resume_they_are_an_error_that_says_so(
    root: Path, more: dict[str, Any], mode: dict[str, Any], said: str
) -> None:
    case = Case(root, {**more, **mode})
    assert said in case.run()
    assert (case.started, case.child.asked) == ([], [])


def test_X8_so_are_they_where_the_definition_says_fork(root: Path) -> None:
    definitions = [helper(context=ContextMode.FORK)]
    case = Case(root, {"attachments": ["a.txt"]}, {"definitions": definitions})
    assert "Leave them out, or give context independent." in case.run()
    assert case.started == []


def test_X8_they_are_charged_to_the_delegate(root: Path) -> None:
    (root / "large.txt").write_text("word " * 6_000)
    case = Case(root, {"attachments": ["large.txt"]}, {"child_window": 8_000, "max_tokens": 1_000})
    case.run()
    assert estimate_text("word " * 6_000) > 4_000
    assert "SUBAGENT_CONTEXT_OVERFLOW" in "".join(case.parent.asked[-1].marked_texts("report"))
    assert case.child.asked == [], "a request that is too large never leaves"


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("a.txt", {"deny": DenyRules(paths=("*.txt",))}, "paths: *.txt"),
        ("a.txt", {"deny": DenyRules(tools=("Read",))}, "tools: Read"),
        ("link", {"deny": DenyRules(paths=("a.txt",))}, "paths: a.txt"),
        ("../outside.txt", ASK, "nobody is here"),
        ("out", ASK, "nobody is here"),
        ("no-such-file", {}, "there is no such file"),
        (".", {}, "it is a folder"),
        ("bytes", {}, "it is no text in UTF-8"),
        ("nul", {}, "it is no text in UTF-8"),
        ("fifo", {}, "not a regular file"),
        ("x\0y", {}, "there is no such file"),
        ("large", {}, "large has 200,000 bytes; 32,000 may be enclosed."),
    ],
)
def test_X8_a_file_that_may_not_or_cannot_be_read_starts_nothing(
    root: Path, path: str, options: dict[str, Any], said: str
) -> None:
    (root / "link").symlink_to("a.txt")
    (root / "out").symlink_to("../outside.txt")
    (root / "bytes").write_bytes(b"\xff\xfe\x00")
    (root / "nul").write_bytes(b"a\0b")
    (root / "large").write_bytes(b"x" * 200_000)
    os.mkfifo(root / "fifo")
    case = Case(root, {"attachments": ["a.txt", path] if not options else [path]}, options)
    answered = case.run()
    assert said in answered
    assert (case.started, case.child.asked) == ([], [])


def test_X8_a_file_outside_is_read_with_the_consent_of_a_person(root: Path) -> None:
    case = Case(root, {"attachments": ["../outside.txt"]}, ASK, Answer(True))
    case.run()
    assert "TEXT FROM OUTSIDE" in case.brief
    (question,) = case.asked
    assert (question.asker, question.action.tool) == (("parent",), "Read")
    assert question.action.path == os.path.realpath(root.parent / "outside.txt")


def test_X8_nothing_is_asked_for_what_would_be_refused_anyway(root: Path) -> None:
    case = Case(root, {"attachments": ["../outside.txt"], "agent": "nobody"}, ASK, Answer(True))
    assert "There is no subagent named 'nobody'" in case.run()
    assert case.asked == []


class TestSessionDelegate:
    @staticmethod
    def delegate(root: Path, child: ScriptedModel, *attachments: str | Path, **more: Any) -> None:
        async def case() -> None:
            async with session(
                root, child, definitions=[helper(model=None)], **more.pop("options", {})
            ) as opened:
                opened.rights.questions.no_surface_wait_s = 0.01
                await opened.delegate("helper", "Look.", attachments=attachments, **more)

        asyncio.run(case())

    def test_X8_it_takes_paths_and_snippets(self, root: Path) -> None:
        child = ScriptedModel("Seen.")
        self.delegate(root, child, root / "a.txt", snippets=[Snippet("error", "BOOM")])
        (brief,) = child.asked[0].marked_texts("brief")
        assert "TEXT OF A" in brief
        assert "BOOM" in brief

    def test_X8_naming_a_file_outside_is_consent_and_a_deny_rule_holds(self, root: Path) -> None:
        child = ScriptedModel("Seen.")
        options = {"permission_mode": Mode.ASK, "deny": DenyRules(paths=("a.txt",))}
        self.delegate(root, child, "../outside.txt", options=options)
        assert "TEXT FROM OUTSIDE" in child.asked[0].text
        with pytest.raises(SidequestError, match="a deny rule") as caught:
            self.delegate(root, child, "a.txt", options=options)
        assert caught.value.code is ErrorCode.TOOL_DENIED

    def test_X8_what_another_program_named_is_asked_for(self, root: Path) -> None:
        options = {"permission_mode": Mode.ASK}
        with pytest.raises(SidequestError, match="nobody is here"):
            self.delegate(root, ScriptedModel(), "../outside.txt", options=options, named_by_person=False)


def test_X8_a_link_that_is_swapped_in_after_the_decision_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "a.txt").write_text("INSIDE")
    case = Case(root, {"attachments": ["sub/a.txt"]}, ASK)
    original = asyncio.to_thread

    async def swap_first(function: Any, *arguments: Any) -> Any:
        if function.__name__ == "_text_of" and not (root / "sub").is_symlink():
            (root / "sub").rename(root / "gone")
            (root.parent / "evil").mkdir()
            (root.parent / "evil" / "a.txt").write_text("EVIL")
            (root / "sub").symlink_to(root.parent / "evil")
        return await original(function, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", swap_first)
    assert "cannot be attached" in case.run()
    assert case.started == []


def test_the_most_that_may_be_enclosed_is_enclosed(root: Path) -> None:
    (root / "full.txt").write_text("ü" * MAX_ENCLOSED_CHARS)
    case = Case(root, {"attachments": ["full.txt"]})
    assert "started" in case.run()
