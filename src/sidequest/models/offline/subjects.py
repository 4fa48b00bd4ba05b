"""Understanding a person's message to the parent: a question, several questions, or something else."""

from __future__ import annotations

import re

from sidequest.models.offline.words import Query, query_of

MAX_SUBJECTS = 4
"""Most delegations started for one message."""

_ITEM = re.compile(r"(?m)^[ \t]*(?:\d+[.)]|[-*•])[ \t]+(\S.*)$")
_NAME = r"`[^`\n]+`|[A-Za-z_$][\w$]*(?:[._:-]+[\w$]+)*(?:\(\))?"
_NAMES = re.compile(rf"(?:{_NAME})(?:, (?:{_NAME}))*,? and (?:the )?(?:{_NAME})")
_QUESTION_WORDS = r"(?:where|what|how|which|who|why|when|list|find|show|is|are|does|do)"
_SECOND_CLAUSE = re.compile(rf"(?i),? and (?={_QUESTION_WORDS}\b)|;\s+(?={_QUESTION_WORDS}\b)")
_SENTENCE = re.compile(r"[^?\n]+\?")
_GREETING = re.compile(
    r"(?i)\W*(?:hi|hello|hey|hallo|good (?:morning|afternoon|evening)|thanks?|thank you|bye|"
    r"ok(?:ay)?|test|ping|yes|no|who are you|what are you|what can you do|how are you|help)\b"
    r"[\s\w,]{0,40}[.!?]*\s*"
)
_POLITE = re.compile(
    r"(?i)^\W*(?:(?:please|now|then|also|hi|hello|hey|can|could|would|will|you|let's|i want you to|"
    r"i need you to|i'd like you to|go ahead and)\b[\s,]*)+"
)
_MAKING_WORDS = """
write implement fix refactor create build generate translate edit modify rename delete remove
install run execute commit deploy add change update rewrite optimise optimize port convert code
program draft compose
"""
_MAKING = frozenset(_MAKING_WORDS.split())
_ASKS = re.compile(r"(?i)\?|\b(?:where|what|which|how|why|find|list|look up|search|locate|report|explain)\b")


def is_greeting(text: str) -> bool:
    """Say whether a message only greets, thanks or asks who is there."""
    return len(text) < 80 and _GREETING.fullmatch(text.strip()) is not None


def asks_for_work(text: str) -> bool:
    """Say whether a message asks for something to be made or changed, which this engine cannot do.

    A message that also asks a question counts as a question.
    """
    request = _POLITE.sub("", text.strip())
    first = re.match(r"[A-Za-z]+", request)
    return first is not None and first[0].lower() in _MAKING and not _ASKS.search(request)


def can_search(query: Query) -> bool:
    """Say whether the question names anything that can be looked for."""
    return bool(query.searchable or query.files or query.folders)


def subjects_of(text: str) -> list[str]:
    """Return the separate questions of a message, at least one and at most `MAX_SUBJECTS`, each on its own.

    Separate are: the items of a list, several question sentences, clauses that begin with a question word,
    and several identifiers that one question names together.
    """
    for split in (_items, _sentences, _clauses, _names):
        subjects = split(text)
        if 1 < len(subjects) <= MAX_SUBJECTS:
            return subjects
        if len(subjects) > 1:
            return [*subjects[: MAX_SUBJECTS - 1], "\n".join(subjects[MAX_SUBJECTS - 1 :])]
    return [text.strip()]


def _items(text: str) -> list[str]:
    items = [item.strip() for item in _ITEM.findall(text)]
    if len(items) < 2 or not all(can_search(query_of(item)) for item in items):
        return []
    lead = _ITEM.split(text, maxsplit=1)[0].strip().rstrip(":")
    return [f"{lead}: {item}" if lead else item for item in items]


def _sentences(text: str) -> list[str]:
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text)]
    if not all(query_of(sentence).strong for sentence in sentences):
        return []
    return sentences


def _clauses(text: str) -> list[str]:
    clauses = [clause.strip() for clause in _SECOND_CLAUSE.split(text) if clause.strip()]
    return clauses if all(_is_specific(clause) for clause in clauses) else []


def _is_specific(clause: str) -> bool:
    query = query_of(clause)
    return bool(query.strong) or (
        len(query.searchable) > 1 and not re.search(r"(?i)\b(?:it|its|they|that)\b", clause)
    )


def _names(text: str) -> list[str]:
    """Turn "where are A, B and C defined?" into one question for each name."""
    for found in _NAMES.finditer(text):
        names = [name for name in re.split(r", and | and |, ", found[0]) if name]
        names = [name.removeprefix("the ") for name in names]
        if len(names) > 1 and all(query_of(name).strong for name in names):
            before = re.sub(r"\bare (?=(?:the )?$)", "is ", text[: found.start()])
            return [f"{before}{name}{text[found.end() :]}".strip() for name in names]
    return []
