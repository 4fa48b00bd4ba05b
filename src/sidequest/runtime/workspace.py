"""Read, Glob, Grep, Edit, Write and Bash over the harness tools, for parent and delegates alike.

The harness does the work (bounds, ripgrep, process groups, a sandbox); here are the names and the
parameters that definitions and prompts use, one lock per path so that siblings do not lose each other's
edits, and errors that a model can act on without using up its retries.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent
from pydantic_ai.toolsets import FunctionToolset

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.path_rules import denied_below, plain_matches
from sidequest.core.permissions import PROTECTED, DenyRules
from sidequest.runtime.leftovers import Family, Leftovers, note_left
from sidequest.runtime.links import names_of, resolved, with_links_followed
from sidequest.runtime.opening import CAN_OPEN_BELOW, is_special, opened
from sidequest.runtime.outside import is_let_through
from sidequest.runtime.sandbox import Sandbox, commands_of, ends_what_it_leaves
from sidequest.runtime.shell import STARTED, shell_backend
from sidequest.runtime.spilled import Spilled

if TYPE_CHECKING:
    from pydantic_ai.workspaces import LocalWorkspaceBackend
    from pydantic_ai_harness.filesystem import FileSystemToolset

TOOL_NAMES = ("Read", "Glob", "Grep", "Edit", "Write", "Bash")
DEFAULT_COMMAND_TIMEOUT_S = 120.0
MAX_COMMAND_TIMEOUT_S = 600.0
MAX_READ_CHARS = 50_000
"""Most characters one Read gives, in whole lines; the guard bounds it further to the window."""
MAX_FILE_TOOLS = 8
"""Most file toolsets that are kept, inclusive; each has the patterns that it leaves out built in."""

ReadResult = str | list[str | BinaryContent]
_T = TypeVar("_T")


class PathLocks:
    """One lock per normalised path, shared by all delegates of a session (specification 3.7)."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def holding(self, path: str) -> AbstractAsyncContextManager[None]:
        """Return a context in which nobody else of the session edits `path`."""
        return self._locks.setdefault(os.path.normcase(os.path.realpath(path)), asyncio.Lock())


def _backend(root: Path, scratch: Path | None = None) -> LocalWorkspaceBackend:
    try:
        from pydantic_ai.workspaces import LocalWorkspaceBackend
    except ImportError as error:
        raise _missing() from error

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
    return (Contained if CAN_OPEN_BELOW else LocalWorkspaceBackend)(root, env=_environment(scratch))


def _files(denied: tuple[str, ...]) -> FileSystemToolset[Any]:
    """Return the file tools of a folder; `denied` are patterns of paths relative to it."""
    try:
        from pydantic_ai_harness.filesystem import FileSystem, FileSystemToolset
    except ImportError as error:
        raise _missing() from error

    toolset = FileSystem[Any](
        content_hashes=False,
        max_read_chars=MAX_READ_CHARS,
        denied_patterns=denied,
        read_only_patterns=(f"**/{PROTECTED}",),  # the harness would protect more; the gate would not know
        tools=("read_file", "write_file", "edit_file", "find_files", "grep"),
    ).get_toolset()
    if not isinstance(toolset, FileSystemToolset):
        raise TypeError("the harness returned a filtered toolset")
    return toolset


def _missing() -> SidequestError:
    return SidequestError(
        ErrorCode.MISSING_EXTRA,
        "The file and shell tools are not installed.",
        "Install them with: pip install 'sidequest[app]'.",
    )


def _environment(scratch: Path | None) -> dict[str, str]:
    """Return the variables that programs get besides the few of this process that the harness passes on."""
    # ripgrep comes as a wheel: its program lies beside this interpreter, which need not be on PATH.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return {"PATH": path} | ({"SIDEQUEST_SCRATCH": str(scratch)} if scratch is not None else {})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path lies, and who reads it."""

    backend: LocalWorkspaceBackend
    files: FileSystemToolset[Any]
    path: str
    """The path for that reader."""
    rules: tuple[str, ...]
    """The plain rules that hold there."""
    folder: str | None = None
    """The folder that its paths start at; None for the workspace."""
    outside: bool = False
    """Whether it is neither in the workspace nor in the scratch folder."""

    def labelled(self, listing: str) -> str:
        """Return a listing of another folder under a line that says where its paths start."""
        return listing if self.folder is None else f"[paths start at {self.folder}]\n{listing}"


@dataclass
class Workspace:
    """The folder a session works in, and its tools.

    Raises:
        SidequestError: `USAGE` when `root` is not a folder; `MISSING_EXTRA` without the harness;
            `SETTINGS_INVALID` when a sandbox is required and does not work here, or for a path rule that
            would match nothing.
    """

    root: Path
    scratch: Path | None = None
    """A folder for files that are not part of the project; whole results that were cut are read from it."""
    locks: PathLocks = field(default_factory=PathLocks)
    denied: tuple[str, ...] = ()
    """Path rules (`DenyRules.paths`) for what Read, Glob, Grep, Edit and Write give or change.

    Bash is not covered: a command reads what the system lets it read. Deny its commands, or Bash itself.
    A rule holds for a path as it is named, for each link on its way, and for what it leads to.
    """
    sandbox: Sandbox = Sandbox.OFF
    """Whether commands run in a sandbox."""
    leftovers: Leftovers = field(default_factory=Leftovers, kw_only=True, repr=False)
    """What commands have left running; who owns the workspace ends it."""

    def __post_init__(self) -> None:
        self.root = self.root.expanduser().resolve()
        if not self.root.is_dir():
            raise SidequestError(
                ErrorCode.USAGE,
                f"The folder {self.root} is not there.",
                "Name an existing folder.",
            )
        self._rules = DenyRules(paths=self.denied)
        self._files: dict[tuple[str, ...], FileSystemToolset[Any]] = {}
        self._files_for(())  # says now that a package is missing
        self._backend = _backend(self.root, self.scratch)
        self._shell = shell_backend(self.root, _environment(self.scratch), self.leftovers)
        self._commands = commands_of(self._shell, self.sandbox, self.scratch)
        self.spilled = Spilled(self.scratch, self.root)
        """Whole results that were cut, also those of earlier processes."""
        self._scratch_backend = _backend(self.scratch) if self.scratch is not None else None

    def denying(self, paths: Sequence[str]) -> Workspace:
        """Return this workspace with the path rules `paths` beside its own; folders and locks are the same.

        Raises:
            SidequestError: `SETTINGS_INVALID` for a rule that would match nothing, or too many of them.
        """
        more = [rule for rule in dict.fromkeys(paths) if rule not in self.denied]
        return replace(self, denied=(*self.denied, *more)) if more else self

    @property
    def contained(self) -> bool:
        """Whether commands run in a sandbox here."""
        return self._commands is not self._shell

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
        """Return where `path` lies, and who reads it.

        Raises:
            ToolFailed: a rule covers one of its names.
        """
        roots = [self.root] if self.scratch is None else [self.root, self.scratch]
        rules = tuple(with_links_followed(self._rules, roots).plain_paths())
        plain = tuple(dict.fromkeys(each for _, each in rules))
        try:
            real, names = resolved(path, self.root), names_of(path, self.root)
        except (OSError, ValueError):  # the harness says what is wrong with it
            real, names = path, ()
        for rule, each in rules:
            if any(plain_matches(name, each) for name in names):
                raise ToolFailed(f"Path {path!r} is denied by pattern {rule!r}.")
        absolute = os.path.normpath(self.root / path)
        if self._scratch_backend is not None and Path(absolute).is_relative_to(self.scratch or ""):
            folder = os.path.realpath(self.scratch or "")
            files = self._files_for(_denied_in(folder, plain, real, names))
            return _Place(self._scratch_backend, files, absolute, plain, folder)
        if not Path(real).is_relative_to(self.root) and is_let_through(real):
            folder = real if os.path.isdir(real) else os.path.dirname(real)  # noqa: PTH112, PTH120 - resolved text
            files = self._files_for(_denied_in(folder, plain, real, names))
            return _Place(_backend(Path(folder)), files, real, plain, folder, outside=True)
        files = self._files_for(_denied_in(str(self.root), plain, real, names))
        return _Place(self._backend, files, path, plain)

    def _files_for(self, denied: tuple[str, ...]) -> FileSystemToolset[Any]:
        """Return the file tools that leave out the patterns `denied`; the newest few are kept."""
        files = self._files.pop(denied, None) or _files(denied)
        self._files[denied] = files
        for old in list(self._files)[:-MAX_FILE_TOOLS]:
            self._files.pop(old, None)
        return files

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
        if not place.outside:
            return place
        files = self._files_for(denied_below(place.rules, str(self.root)))
        return _Place(self._backend, files, path, place.rules)

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
        found = await _said(place.files.find_files(pattern, path=place.path, workspace=place.backend))
        root = Path(place.folder or self.root)
        return place.labelled(await asyncio.to_thread(_without_denied, found, root, place.rules))

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
                return await place.files.edit_file(place.path, old_text, new_text, workspace=place.backend)

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
                parent = os.path.dirname(place.path)  # noqa: PTH120 - a tool's path is text in the workspace
                if parent and not await asyncio.to_thread((self.root / parent).is_dir):
                    await place.files.create_directory(parent, workspace=place.backend)
                return await place.files.write_file(place.path, content, workspace=place.backend)

        return await _said(written())

    async def bash(self, command: str, timeout: float = DEFAULT_COMMAND_TIMEOUT_S) -> str:
        """Run a shell command in the working folder and return its output and exit code.

        Args:
            command: Text for sh; it cannot read input.
            timeout: Seconds until it and everything it started is killed, at most 600.
        """
        from pydantic_ai.workspaces import WorkspaceError, WorkspaceTimeoutError

        limit = min(MAX_COMMAND_TIMEOUT_S, max(0.1, timeout))
        started: list[Family] = []
        token = STARTED.set(started)
        try:
            result = await self._commands.run(command, shell=True, timeout=limit)
        except WorkspaceTimeoutError as error:
            output = _labelled(error.stdout, error.stderr)
            raise ToolFailed(f"{output}\n[killed after {limit:g} seconds]") from error
        except (WorkspaceError, OSError, ValueError) as error:
            raise ToolFailed(str(error)) from error
        finally:
            STARTED.reset(token)
        left = await self.leftovers.left_by(started, end=ends_what_it_leaves(self._commands))
        said = f"{_labelled(result.stdout, result.stderr)}\n[exit code: {result.exit_code}]".lstrip("\n")
        return f"{said}\n{note_left(left)}" if left else said


def _denied_in(folder: str, rules: Sequence[str], real: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return plain rules as patterns of paths relative to `folder`.

    `real` is what is looked at there; what a rule says of it under another of its `names` holds too.
    """
    found = dict.fromkeys(denied_below(rules, folder))
    if Path(real).is_relative_to(folder):
        inner = "" if real == folder else f"{escape(os.path.relpath(real, folder))}/"
        for name in names:
            if name != real:
                found |= dict.fromkeys(f"{inner}{pattern}" for pattern in denied_below(rules, name))
    return tuple(found)


def _without_denied(listing: str, root: Path, rules: Sequence[str]) -> str:
    """Leave out paths one of whose names is denied; the harness compares the first and the last."""
    if not rules:
        return listing
    kept = [
        line
        for line in listing.splitlines()
        if not any(plain_matches(name, rule) for name in names_of(line, root) for rule in rules)
    ]
    return "\n".join(kept) or "No matches found."


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
