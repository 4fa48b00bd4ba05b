"""Deciding what a request is for, from the request alone."""

from __future__ import annotations

from sidequest.models.offline.entries import Reply, Request, UserText
from sidequest.models.offline.knowledge import SEARCH_KINDS
from sidequest.models.offline.parent import lead
from sidequest.models.offline.quoting import quote
from sidequest.models.offline.recognise import find_brief
from sidequest.models.offline.search import work
from sidequest.models.offline.subjects import asks_for_work, can_search, is_greeting
from sidequest.models.offline.summary import is_summary_request, summarise
from sidequest.models.offline.voice import cannot_make, greeting
from sidequest.models.offline.words import query_of


def respond(request: Request) -> Reply:
    """Answer one request. The same request always gets the same answer.

    Without tools and with a `<conversation>` to summarise it is a summariser; with a `Task` tool a parent;
    with Grep, Glob or Read a delegate; otherwise it quotes from the text it was given.
    """
    if not request.tools:
        for entry in reversed(request.entries):
            if isinstance(entry, UserText) and is_summary_request(entry.text):
                text = summarise(entry.text, max_chars=request.max_chars, window=request.window)
                return Reply(text)
        return quote(request)
    if "task" in request.tools:
        return lead(request)
    if any(kind in request.tools for kind in SEARCH_KINDS):
        return _delegate(request)
    return quote(request)


def _delegate(request: Request) -> Reply:
    brief = find_brief(request.entries)[1]
    if is_greeting(brief) or not brief.strip():
        return Reply(greeting())
    if asks_for_work(brief):
        return Reply(cannot_make())
    query = query_of(brief)
    return work(request) if can_search(query) else quote(request)
