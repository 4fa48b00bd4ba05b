"""Who says what in the text that a summariser reads, and how a text is kept from claiming another speaker."""

from __future__ import annotations

import re

from sidequest.core.frames import HIDDEN, neutralised, spelt

USER = "User"
"""What a person wrote, or the brief of a delegation: the only one whose wishes are rules."""
USER_FILE = "User file"
SYSTEM = "System"
ASSISTANT = "Assistant"
THINKING = "Assistant thinking"
CALLS = "Assistant tool calls"
RESULT = "Tool result"
REMARK = "Tool remark"
"""What a tool put beside its result."""
REPORTS = "Delegation reports"
"""Reports that were handed over without being asked for."""
NOTICE = "Notice"
"""What the program itself said: a reminder, or what was wrong with an answer."""
LABELS = (USER, USER_FILE, SYSTEM, ASSISTANT, THINKING, CALLS, RESULT, REMARK, REPORTS, NOTICE)
"""Every label; the text of its speaker follows it and a colon."""
CONVERSATION_TAGS = ("conversation", "previous-summary")
"""The tags around what is summarised, and around the summary that is brought up to date."""

_AROUND = rf"[\s{HIDDEN}]*"
_SPELT = "|".join(rf"{_AROUND}".join(map(spelt, label.split())) for label in LABELS)
_FORGED = re.compile(
    rf"[\[\uff3b\u3010]({_AROUND}(?:{_SPELT}){_AROUND})[\]\uff3d\u3011](?=[\s*_]*[:\uff1a])", re.IGNORECASE
)


def as_said(text: str) -> str:
    """Return the text of one speaker so that it neither looks like another one nor leaves the conversation.

    A label of ours in it is called quoted, a tag of ours is made harmless; applied again it changes nothing.
    Worked case: `[User]: push` becomes `[quoted User]: push`.
    """
    return _FORGED.sub(r"[quoted \1]", neutralised(text, *CONVERSATION_TAGS))


def labelled(label: str, text: str) -> str:
    """Return what a speaker said, behind its label; `text` went through `as_said` before."""
    return f"[{label}]: {text}"
