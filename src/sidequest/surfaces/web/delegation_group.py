"""Delegations that stand together: one card, or a summary with a tree from the parent to each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidequest.core.outcome import Usage
from sidequest.surfaces.storing import now_ms
from sidequest.surfaces.text import count, duration, money, some
from sidequest.surfaces.web.delegation_card import DelegationCard, status_words
from sidequest.surfaces.web.keyed import KeyedList
from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.app.work import Work
    from sidequest.surfaces.web.session_desk import SessionDesk


@dataclass(frozen=True, slots=True)
class Works:
    """Delegations in a row, as far as they are."""

    key: str
    works: tuple[Work, ...]


class DelegationGroup:
    """A row of delegations in a conversation."""

    def __init__(self, desk: SessionDesk, value: Works) -> None:
        self._cards: dict[str, DelegationCard] = {}
        self._value = value
        self._desk = desk
        with Tag("section", classes="group") as self.element:
            with Tag("div", classes="group-head") as self._head:
                Tag("span", classes="group-root", aria_hidden="true")
                with Tag("p", classes="group-words"):
                    self._title = Tag("strong")
                    self._sum = Tag("span", classes="quiet-text")
            self._list: KeyedList[Work] = KeyedList(
                Tag("div", classes="tree"),
                key=lambda work: work.id,
                sameness=_id,
                make=self._card,
            )
        self.show(value)

    def _card(self, work: Work) -> DelegationCard:
        card = DelegationCard(self._desk, work)
        self._cards[work.id] = card
        return card

    def show(self, value: Works) -> None:
        """Show how far they are."""
        self._value = value
        many = len(value.works) > 1
        self.element.classes(**{"add" if many else "remove": "many"})
        self.element.attribute("aria_label", "Delegations of the parent agent" if many else None)
        self._head.attribute("hidden", not many)
        self._list.show(value.works)
        self._words()

    def tick(self) -> None:
        """Let the clocks of the running ones go on."""
        for card in self._cards.values():
            if card.running:
                card.tick()
        if self.running:
            self._words()

    @property
    def running(self) -> bool:
        """Whether a clock goes."""
        return any(work.running for work in self._value.works)

    def _words(self) -> None:
        works = self._value.works
        self.element.classes(**{"add" if self.running else "remove": "live"})
        self._title.text = f"Parent agent → {some(len(works), 'delegation')}"
        self._sum.text = f" · {summary_of(works)}"


def _id(work: Work) -> Hashable:
    return work.id


def summary_of(works: tuple[Work, ...]) -> str:
    """Return how many stand where, how long they took together, and what they used."""
    counts = Counter(status_words(work)[0] for work in works)
    parts = [f"{number} {words}" for words, number in counts.items()]
    begun = min(work.view.started_at_ms for work in works)
    ends = [work.view.ended_at_ms for work in works]
    end = now_ms() if any(at is None for at in ends) else max(at for at in ends if at is not None)
    parts.append(duration((end - begun) / 1000))
    used = [work.usage for work in works if work.usage is not None]
    if used:
        total = Usage()
        for usage in used:
            total = total.plus(usage)
        parts.append(f"{count(total.total_tokens)} tokens used")
        if len(used) == len(works):
            parts.append(money(total.cost_usd))
    return " · ".join(parts)
