"""The parent's policy: hand questions to subagents, wait for them, answer from their reports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sidequest.models.offline.entries import Call, Reply, Request, Tool, UserText
from sidequest.models.offline.knowledge import LOST_HISTORY, Delegated, Knowledge, gather
from sidequest.models.offline.lines import cited_lines, shown
from sidequest.models.offline.ranking import rank
from sidequest.models.offline.subjects import asks_for_work, can_search, is_greeting, subjects_of
from sidequest.models.offline.voice import SIGNED, cannot_make, greeting
from sidequest.models.offline.words import Aim, query_of

PREFERRED_AGENT = "explorer"
MAX_WAITS = 4
"""Times one turn waits; what still runs then is delivered by itself when it ends."""
_FEW_LINES = 8
"""Lines quoted of one report, unless the question asks for a list."""
_MOST_LINES = 250
_LISTED_AGENT = re.compile(r"(?m)^\s*[-*]\s+`?([a-z0-9][a-z0-9-]{0,39})`?\s*[(:]")
_NOTE = re.compile(
    r"(?im)^.*(?:older working history was discarded|^note: |^partial report: |^model \S+ failed \("
    r"|failed after \d+ turns|^not found: |^not read to the end: |^nothing was found"
    r"|no exact match was found|^failed: |more matching lines are not shown).*$"
)
_ADDRESS = re.compile(
    r"(?i)^\W*(?:please )?(?:use|ask|let|have)\s+(?:the\s+)?`?@?[\w-]+`?(?: subagent| agent)?\s+to\s+"
)
"""How a question begins that names the agent to use; the agent itself need not read that."""
_PRONOUN = re.compile(r"(?i)\b(?:it|its|they|their|that|this)\b")


def lead(request: Request) -> Reply:
    """Return the next step of the parent: delegate, wait, or answer."""
    known = gather(request.entries)
    question = known.brief
    if not known.turn and not known.refused:
        if is_greeting(question) or not question.strip():
            return Reply(greeting())
        if asks_for_work(question):
            return Reply(cannot_make())
        if not can_search(known.query) and not _meant(question, request):
            return Reply(greeting())
        return _delegate(question, request)
    tasks = [known.delegated[key] for key in known.turn]
    running = [task.id for task in tasks if not task.settled]
    wait = request.tools.get("taskwait")
    if running and wait and known.waits < MAX_WAITS:
        args = {"delegationIds": running} if "delegationIds" in wait.parameters or not wait.parameters else {}
        return Reply("", (Call(wait.name, args),))
    return Reply(_answer(known, tasks, request.max_chars))


def _delegate(question: str, request: Request) -> Reply:
    task = request.tools["task"]
    agent = choose_agent(task, question)
    subjects = subjects_of(_ADDRESS.sub("", question))
    calls = tuple(_task_call(task, agent, subject, request) for subject in subjects)
    what = "this question" if len(calls) == 1 else f"these {len(calls)} questions, one each,"
    return Reply(f"Handing {what} to {agent}.", calls)


def choose_agent(task: Tool, question: str = "") -> str:
    """Return the agent the question names, else `explorer` when it is offered, else the first one offered."""
    agents = task.agents or tuple(dict.fromkeys(_LISTED_AGENT.findall(task.description)))
    for agent in agents:
        if re.search(rf"(?i)(?:@|\b(?:use|ask|with|let)\s+(?:the\s+)?`?){re.escape(agent)}\b", question):
            return agent
    if PREFERRED_AGENT in agents or not agents:
        return PREFERRED_AGENT
    return agents[0]


def _task_call(task: Tool, agent: str, subject: str, request: Request) -> Call:
    args: dict[str, object] = {"agent": agent, "task": _brief(subject, request)}
    if "description" in task.parameters or not task.parameters:
        args["description"] = _label(subject)
    return Call(task.name, args)


def _brief(subject: str, request: Request) -> str:
    """Write a brief that stands alone: the question, what a pronoun in it means, the shape of the report."""
    meant = ", ".join(f"`{name}`" for name in _meant(subject, request))
    about = f" (This is about {meant}.)" if meant else ""
    question = re.sub(r"\n\s*\n", "\n", subject)
    return (
        "Search and read the files of the workspace to answer this question.\n\n"
        f"Question: {question}{about}\n\n"
        "Report the lines that answer it as path:line: text. Say so plainly when nothing is found."
    )


def _meant(subject: str, request: Request) -> list[str]:
    """Return the names of an earlier question that a pronoun of this one stands for."""
    if query_of(subject).strong or not _PRONOUN.search(subject):
        return []
    texts = [entry.text for entry in request.entries if isinstance(entry, UserText)]
    for text in reversed(texts[:-1]):
        if names := [term.text for term in query_of(text).strong]:
            return names[:2]
    return []


def _label(subject: str) -> str:
    """Return three to six words for lists of delegations."""
    query = query_of(subject)
    words = [term.text for term in query.searchable if " " not in term.text][:3]
    return f"Look up {' '.join(words)}"[:60] if words else "Look up the question"


def _answer(known: Knowledge, tasks: list[Delegated], max_chars: int) -> str:
    blocks = [f"The delegation was not started: {shown(text)}" for text in known.refused]
    room = max(400, (max_chars - 200) // max(1, len(tasks)))
    lines = _MOST_LINES if known.query.aim in {Aim.LIST, Aim.SWEEP} else _FEW_LINES
    found = False
    for task in tasks:
        body, cites = _findings(task, known, room, lines)
        found = found or cites
        heading = f"{task.label or task.agent}:" if len(tasks) > 1 else ""
        blocks.append("\n".join(part for part in (heading, body) if part))
    if tasks and not found and all(task.settled for task in tasks):
        blocks.insert(0, "No line that answers the question was found.")
    carried = [note for note in known.notes if LOST_HISTORY in note and note not in "".join(blocks)]
    return "\n\n".join([*carried, *blocks, SIGNED])


def _quotations(task: Delegated, known: Knowledge) -> list[str]:
    """Return the lines a report quotes; of a report that only a summary remembers, those it kept."""
    if task.report or task.status != "completed":
        return [f"- {path}:{number}: {shown(text)}" for path, number, text in cited_lines(task.report)]
    hits = rank(known, query_of(task.label)) or rank(known)
    return [f"- {hit.path}:{hit.line}: {shown(hit.text)}" for hit in hits if hit.place in known.kept]


def _findings(task: Delegated, known: Knowledge, room: int, lines: int) -> tuple[str, bool]:
    """Return what a report says that matters here, and whether it quotes any line."""
    if not task.settled:
        return f"{task.agent} ({task.id}) is still running; its report arrives by itself.", False
    notes = list(dict.fromkeys(match[0].strip() for match in _NOTE.finditer(task.report)))
    if task.status != "completed":
        notes.insert(0, f"{task.agent} ended as {task.status}.")
    quoted = _quotations(task, known)
    if not quoted and not notes:
        notes = [task.report.strip()[:room] or f"{task.agent} returned no report."]
    kept = list(_fitting(quoted[:lines], room - sum(len(note) + 1 for note in notes)))
    if len(kept) < len(quoted):
        kept.append(f"({len(quoted) - len(kept)} more lines are in the report.)")
    return "\n".join([*notes, *kept]), bool(quoted)


def _fitting(lines: list[str], room: int) -> Iterator[str]:
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return
        yield line
