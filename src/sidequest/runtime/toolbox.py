"""Which tools a session can grant to its delegates, and how a granted subset is made."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset

from sidequest.runtime.workspace import TOOL_NAMES, Workspace


@dataclass
class Toolbox:
    """The workspace tools, when there is a workspace, and any tools the host adds."""

    workspace: Workspace | None = None
    extra: FunctionToolset[Any] | None = None
    """Tools of the host; a definition grants them by name, or with `inherit`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that can be granted, in a stable order."""
        own = TOOL_NAMES if self.workspace is not None else ()
        added = tuple(self.extra.tools) if self.extra is not None else ()
        return (*own, *(name for name in added if name not in own))

    def toolset(self, names: Collection[str]) -> AbstractToolset[Any]:
        """Return exactly the tools in `names`; names that are not in the box are passed over."""
        wanted = frozenset(names)
        parts: list[AbstractToolset[Any]] = []
        if self.workspace is not None:
            parts.append(self.workspace.toolset(wanted))
        if self.extra is not None:
            own = frozenset(TOOL_NAMES) if self.workspace is not None else frozenset[str]()
            parts.append(self.extra.filtered(lambda ctx, tool: tool.name in wanted - own))
        return CombinedToolset(parts)
