"""A part of the settings: who is signed in makes a link for another browser or device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidequest.surfaces.web.tags import Tag

if TYPE_CHECKING:
    from sidequest.surfaces.web.access import Access

VALID_MIN = 10
"""How long such a link counts, in minutes."""


def new_link(access: Access) -> None:
    """Put the button, and later the link it makes, into the page at hand."""
    with Tag("section", classes="form", aria_label="Other devices"):
        Tag("h2", "Other devices")
        Tag("p", f"A link lets one more browser in, once, within {VALID_MIN} minutes.", "hint")
        with Tag("div", classes="actions"):
            button = Tag("button", "Make a link", "button", type="button")
        links = Tag("div", role="status")

    def make() -> None:
        links.clear()
        with links:
            for link in access.new_links(VALID_MIN * 60):
                Tag("p", link, "mono link-text")

    button.on("click", make)
