"""What the permission modes are called, on every page."""

from __future__ import annotations

from sidequest.core.permissions import Mode

MODE_WORDS = {
    Mode.ASK: "Ask before edits and commands",
    Mode.ACCEPT_EDITS: "Accept edits, ask before commands",
    Mode.AUTO: "Allow what no rule denies",
}
