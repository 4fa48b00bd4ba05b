"""From a wish to delegate to a delegation that runs: checked, attachments read, confirmed, started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelMessage

from sidequest.core.enclosures import Attachment
from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.runtime.attachments import read_attachments
from sidequest.runtime.delegations import Delegations
from sidequest.runtime.permissions import PermissionGate
from sidequest.runtime.planning import StartRequest
from sidequest.runtime.prefix import Prefix
from sidequest.runtime.records import DelegationRecord


async def spawn(
    registry: Delegations,
    request: StartRequest,
    parent: Sequence[ModelMessage] = (),
    prefix: Prefix | None = None,
    attachments: Sequence[str] = (),
    *,
    consented: bool = False,
) -> DelegationRecord:
    """Start what `request` asks for; `attachments` are paths whose texts go with its task.

    What would be refused is refused before anything is asked or read. `consented` says that a person named
    subagent and files by themselves, so that nothing is asked. `parent` and `prefix` are those of
    `Delegations.start`.

    Raises:
        SidequestError: what is wrong and what can be done; nothing was started.
    """
    if request.resume:
        await registry.prepare(request.resume)
    checked = registry.check(
        replace(request, attachments=tuple(Attachment(path, "") for path in attachments))
    )
    if attachments:
        if registry.rights is None or not registry.rights.roots:
            raise SidequestError(
                ErrorCode.SUBAGENT_INVALID,
                "There is no workspace that attachments could be read from.",
                "Give the texts as snippets.",
            )
        gate = PermissionGate(registry.rights, ("parent",))
        read = await read_attachments(attachments, gate, consented=consented)
        request = replace(request, attachments=read)
    await registry.confirmations.confirm(registry, checked, consented=consented)
    return registry.start(request, parent, prefix)
