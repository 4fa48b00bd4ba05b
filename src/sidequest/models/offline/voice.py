"""What the engine says about itself: that it is no language model, and how to get one."""

from __future__ import annotations

CONFIGURE = "To use a language model, see `sidequest models list`."
ABOUT = (
    "I am the offline extractive engine, not a language model. I can search this workspace and quote the "
    "lines that answer a question about its files, for example: where is X defined, what is the value of Y, "
    "list all Z."
)
CANNOT_MAKE = (
    "I cannot write or change anything or run commands: I am the offline extractive engine, "
    "not a language model."
)
CAN_SEARCH = "I can search the files of this workspace and quote the lines that answer a question."
SIGNED = "(Offline extractive engine: quoted, not interpreted.)"


def greeting() -> str:
    """Return the answer to a greeting or to a message that names nothing to look for."""
    return f"{ABOUT} {CONFIGURE}"


def cannot_make() -> str:
    """Return the answer to a request for work that this engine cannot do."""
    return f"{CANNOT_MAKE} {CAN_SEARCH} {CONFIGURE}"
