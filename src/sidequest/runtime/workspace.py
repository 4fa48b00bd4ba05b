"""Read, Glob, Grep, Edit, Write and Bash over the harness tools, for parent and delegates alike.

The harness does the work (bounds, ripgrep, process groups, a sandbox); here are the names and the
parameters that definitions and prompts use, one lock per path so that siblings do not lose each other's
edits, and errors that a model can act on without using up its retries.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent
from pydantic_ai.toolsets import FunctionToolset

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import Action, DenyRules, denied_below
from sidequest.runtime.opening import CAN_OPEN_BELOW, is_special, opened
from sidequest.runtime.outside import is_let_through
from sidequest.runtime.sandbox import Sandbox, commands_of
from sidequest.runtime.spilled import Spilled

if TYPE_CHECKING:
    from pydantic_ai.workspaces import LocalWorkspaceBackend
    from pydantic_ai_harness.filesystem import FileSystemToolset

TOOL_NAMES = ("Read", "Glob", "Grep", "Edit", "Write", "Bash")
DEFAULT_COMMAND_TIMEOUT_S = 120.0
MAX_COMMAND_TIMEOUT_S = 600.0
MAX_READ_CHARS = 50_000
"""Most characters one Read gives, in whole lines; the guard bounds it further to the window."""

ReadResult = str | list[str | BinaryContent]
_T = TypeVar("_T")


class PathLocks:
    """One lock per normalised path, shared by all delegates of a session (specification 3.7)."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def holding(self, path: str) -> AbstractAsyncContextManager[None]:
        """Return a context in which nobody else of the session edits `path`."""
        return self._locks.setdefault(os.path.normcase(os.path.realpath(path)), asyncio.Lock())


def _harness(
    root: Path, scratch: Path | None, denied: tuple[str, ...] = ()
) -> tuple[LocalWorkspaceBackend, FileSystemToolset[Any]]:
    try:
        from pydantic_ai.workspaces import LocalWorkspaceBackend
        from pydantic_ai_harness.filesystem import FileSystem
        from pydantic_ai_harness.filesystem import FileSystemToolset as Toolset
    except ImportError as error:
        raise SidequestError(
            ErrorCode.MISSING_EXTRA,
            "The file and shell tools are not installed.",
            "Install them with: pip install 'sidequest[app]'.",
        ) from error

    class Contained(LocalWorkspaceBackend):
        """Opens files so that a link that is swapped in after the check is not followed."""

        opening = PathLocks()

        async def read_bytes(self, path: str) -> bytes:
            def read() -> bytes:
                with (
                    opened(real_root, path, os.O_RDONLY) as descriptor,
                    open(descriptor, "rb", closefd=False) as f,
                ):
                    return f.read()

            async with self.opening.holding(path):
                return await asyncio.to_thread(read)

        async def write_bytes(self, path: str, data: bytes) -> None:
            def write() -> None:
                with (
                    opened(real_root, path, os.O_WRONLY | os.O_CREAT) as descriptor,
                    open(descriptor, "wb", closefd=False) as file,
                ):
                    file.truncate(0)
                    file.write(data)

            async with self.opening.holding(path):
                await asyncio.to_thread(write)

    real_root = os.path.realpath(root)
    # ripgrep comes as a wheel: its program lies beside this interpreter, which need not be on PATH.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    env = {"PATH": path}
    if scratch is not None:
        env["SIDEQUEST_SCRATCH"] = str(scratch)
    backend = (Contained if CAN_OPEN_BELOW else LocalWorkspaceBackend)(root, env=env)
    toolset = FileSystem[Any](
        content_hashes=False,
        max_read_chars=MAX_READ_CHARS,
        denied_patterns=denied_below(denied, real_root),
        tools=("read_file", "write_file", "edit_file", "find_files", "grep"),
    ).get_toolset()
    if not isinstance(toolset, Toolset):
        raise TypeError("the harness returned a filtered toolset")
    return backend, toolset


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path lies, and who reads it."""

    backend: LocalWorkspaceBackend
    files: FileSystemToolset[Any]
    path: str
    """The path for that reader."""
    folder: str | None = None
    """The folder outside of the workspace that its paths start at; None inside."""

    def labelled(self, listing: str) -> str:
        """Return a listing of an outside folder under a line that says where its paths start."""
        return listing if self.folder is None else f"[paths start at {self.folder}]\n{listing}"


@dataclass
class Workspace:
    """The folder a session works in, and its tools.

    Raises:
        SidequestError: `USAGE` when `root` is not a folder; `MISSING_EXTRA` without the harness;
            `SETTINGS_INVALID` when a sandbox is required and does not work here.
    """

    root: Path
    scratch: Path | None = None
    """A folder for files that are not part of the project; whole results that were cut are read from it."""
    locks: PathLocks = field(default_factory=PathLocks)
    denied: tuple[str, ...] = ()
    """Path rules (`DenyRules.paths`) for what Read, Glob, Grep, Edit and Write give or change.

    Bash is not covered: a command reads what the system lets it read. Deny its commands, or Bash itself.
    """
    sandbox: Sandbox = Sandbox.OFF
    """Whether commands run in a sandbox."""

    def __post_init__(self) -> None:
        self.root = self.root.expanduser().resolve()
        if not self.root.is_dir():
            raise SidequestError(
                ErrorCode.USAGE,
                f"The folder {self.root} is not there.",
                "Name an existing folder with --cwd.",
            )
        self._backend, self._files = _harness(self.root, self.scratch, self.denied)
        self._commands = commands_of(self._backend, self.sandbox, self.scratch)
        self.spilled = Spilled(self.scratch, self.root)
        """Whole results that were cut, also those of earlier processes."""
        self._scratch_files = _harness(self.scratch, None, self.denied) if self.scratch is not None else None

    @property
    def contained(self) -> bool:
        """Whether commands run in a sandbox here."""
        return self._commands is not self._backend

    def spill(self, name: str, text: str) -> str | None:
        """Store a whole tool result in the scratch folder and return its path, or None without a folder.

        See `Spilled.write`.
        """
        return self.spilled.write(name, text)

    def toolset(self, names: Collection[str] = TOOL_NAMES) -> FunctionToolset[Any]:
        """Return the tools among `names`, in the canonical order; unknown names are passed over."""
        functions: dict[str, Callable[..., Awaitable[Any]]] = {
            "Read": self.read,
            "Glob": self.glob,
            "Grep": self.grep,
            "Edit": self.edit,
            "Write": self.write,
            "Bash": self.bash,
        }
        toolset: FunctionToolset[Any] = FunctionToolset()
        for name in TOOL_NAMES:
            if name in names:
                # A barrier: only a message that holds nothing but Task calls fans out (specification 3.3).
                toolset.add_function(functions[name], name=name, sequential=True)
        return toolset

    def _place(self, path: str) -> _Place:
        try:
            real = os.path.realpath(self.root / path)
        except (OSError, ValueError):  # the harness says what is wrong with it
            return _Place(self._backend, self._files, path)
        if self.scratch is not None and self._scratch_files is not None:
            absolute = os.path.normpath(self.root / path)
            if Path(absolute).is_relative_to(self.scratch):
                return _Place(*self._scratch_files, path)
        if not Path(real).is_relative_to(self.root) and is_let_through(real):
            folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120 - resolved text
            return _Place(*_harness(Path(folder), None, self.denied), real, folder)
        return _Place(self._backend, self._files, path)

    async def _fetched(self, path: str) -> str:
        """Return where `path` is; a whole result of an earlier process is put there first."""
        try:
            return await self.spilled.fetch(path)
        except SidequestError as error:
            raise ToolFailed(f"{path} cannot be read: {error.cause}") from error
        except OSError as error:
            raise ToolFailed(f"{path} cannot be read: {error.strerror}") from error

    def _writable(self, path: str) -> _Place:
        """Return where `path` lies when it may be written: outside nothing is, whatever was let through."""
        place = self._place(path)
        return _Place(self._backend, self._files, path) if place.folder is not None else place

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult:
        """Read a text file with line numbers, or view an image.

        Args:
            path: File path, relative to the working folder.
            offset: Number of lines to skip.
            limit: Most lines to return; all that fit when left out.
        """
        path = await self._fetched(path)
        place = await asyncio.to_thread(self._place, path)
        reading = place.files.read_file(
            place.path, offset=max(0, offset), limit=limit, workspace=place.backend
        )
        found = await _said(reading)
        if isinstance(found, str) and found.startswith("Path not found: "):
            is_folder = await asyncio.to_thread(os.path.isdir, self.root / path)
            raise ToolFailed(f"{path} is a folder; list it with Glob." if is_folder else found)
        return found

    async def glob(self, pattern: str, path: str = ".") -> str:
        """List files whose path matches a glob pattern, one path per line.

        Args:
            pattern: For example `**/*.py` or `src/*.toml`.
            path: Folder to search in, relative to the working folder.
        """
        path = await self._fetched(path)
        place = await asyncio.to_thread(self._place, path)
        if place.folder is None:
            found = await _said(self._files.find_files(pattern, path=path, workspace=self._backend))
        else:
            found = await _said(place.files.find_files(pattern, path=".", workspace=place.backend))
        root = Path(place.folder or self.root)
        return place.labelled(
            await asyncio.to_thread(self._without_denied, found, root) if self.denied else found
        )

    def _without_denied(self, listing: str, root: Path) -> str:
        """Leave out paths that lead into a denied folder through a link; the harness compares names."""
        rules = DenyRules(paths=self.denied)
        lines = listing.splitlines()
        kept = [
            line
            for line in lines
            if rules.match(Action("Glob", os.path.realpath(root / line))) is None or line.startswith("[")
        ]
        return "\n".join(kept) or "No matches found."

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        glob: str | None = None,
        ignore_case: bool = False,
        literal: bool = False,
        context: int = 0,
    ) -> str:
        """Search file contents; returns lines as `path:line:text`.

        Args:
            pattern: A regular expression, or plain text with `literal`.
            path: File or folder to search in, relative to the working folder.
            glob: Only files that match, for example `*.py`.
            ignore_case: Let upper and lower case match.
            literal: Take the pattern as plain text.
            context: Lines to show around each hit, 0 to 20.
        """
        path = await self._fetched(path)
        place = await asyncio.to_thread(self._place, path)
        # ripgrep opens what it is given by name, and would wait at a FIFO or read a device without an end.
        if await asyncio.to_thread(is_special, self.root / path):
            raise ToolFailed(f"{path} is not a regular file (a FIFO, socket, or device).")
        found = await _said(
            place.files.grep(
                pattern,
                path=place.path,
                glob=glob,
                ignore_case=ignore_case,
                literal=literal,
                context=min(20, max(0, context)),
                workspace=place.backend,
            )
        )
        return place.labelled(found)

    async def edit(self, path: str, old_text: str, new_text: str) -> str:
        """Replace one exact piece of text in a file; it must occur exactly once.

        Args:
            path: File path, relative to the working folder.
            old_text: The text to replace, with enough of its surroundings to be unique.
            new_text: The text to put there.
        """

        async def edited() -> str:
            place = self._writable(path)
            async with self.locks.holding(str(self.root / path)):
                return await place.files.edit_file(path, old_text, new_text, workspace=place.backend)

        return await _said(edited())

    async def write(self, path: str, content: str) -> str:
        """Create a file, or replace the whole of it.

        Args:
            path: File path, relative to the working folder.
            content: The whole new text of the file.
        """

        async def written() -> str:
            place = self._writable(path)
            async with self.locks.holding(str(self.root / path)):
                parent = os.path.dirname(path)  # noqa: PTH120 - a tool's path is text in the workspace
                if parent and not await asyncio.to_thread((self.root / parent).is_dir):
                    await place.files.create_directory(parent, workspace=place.backend)
                return await place.files.write_file(path, content, workspace=place.backend)

        return await _said(written())

    async def bash(self, command: str, timeout: float = DEFAULT_COMMAND_TIMEOUT_S) -> str:
        """Run a shell command in the working folder and return its output and exit code.

        Args:
            command: Text for sh; it cannot read input.
            timeout: Seconds until it and everything it started is killed, at most 600.
        """
        from pydantic_ai.workspaces import WorkspaceError, WorkspaceTimeoutError

        limit = min(MAX_COMMAND_TIMEOUT_S, max(0.1, timeout))
        try:
            result = await self._commands.run(command, shell=True, timeout=limit)
        except WorkspaceTimeoutError as error:
            output = _labelled(error.stdout, error.stderr)
            raise ToolFailed(f"{output}\n[killed after {limit:g} seconds]") from error
        except (WorkspaceError, OSError, ValueError) as error:
            raise ToolFailed(str(error)) from error
        return f"{_labelled(result.stdout, result.stderr)}\n[exit code: {result.exit_code}]".lstrip("\n")


def _labelled(stdout: str, stderr: str) -> str:
    out, err = stdout.rstrip("\n"), stderr.rstrip("\n")
    if out and err:
        return f"{out}\n[stderr]\n{err}"
    return out or (f"[stderr]\n{err}" if err else "[no output]")


async def _said(operation: Awaitable[_T]) -> _T:
    """Turn the harness's "try again" into a plain tool failure: the model adapts, no retry is used up.

    So are a path or a text that the system or the workspace refuses, and a pattern that is nested too deep: a
    bad argument must not end the run.
    """
    from pydantic_ai.workspaces import WorkspaceError

    try:
        return await operation
    except ModelRetry as error:
        raise ToolFailed(error.message) from error
    except (WorkspaceError, RecursionError, OSError, ValueError) as error:
        raise ToolFailed(str(error)) from error
