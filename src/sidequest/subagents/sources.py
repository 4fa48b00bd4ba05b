"""Where definition files live, and how one folder of them is read.

Reading never leaves the folder's root, never follows a link out of it, never opens anything but a regular
file, and never fails: what cannot be read is a diagnostic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sidequest.subagents.definition import Scope
from sidequest.subagents.diagnostics import Diagnostic, Severity
from sidequest.subagents.frontmatter import MAX_DOCUMENT_BYTES, symlink_target
from sidequest.subagents.regular_files import beginning_of

MAX_DOCUMENTS_PER_FOLDER = 64
"""Most files read from one folder, inclusive (specification 4.1, "64 user documents")."""
USER_FOLDER = Path(".agents/subagents")
"""Below the home folder."""
PROJECT_FOLDERS = tuple(
    Path(folder)
    for folder in (
        ".agents/subagents",
        ".agents/agents",
        ".claude/agents",
        ".opencode/agent",
        ".opencode/agents",
        ".pi/agents",
        ".github/agents",
        ".gemini/agents",
    )
)
"""Below the project root, the earlier ones first where two files claim one name."""

_NEVER_OUTSIDE = frozenset({Scope.PROJECT, Scope.FOREIGN})


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file of a source: its bytes, or why it has none."""

    path: str
    data: bytes | None
    problem: Diagnostic | None = None
    over_cap: bool = False
    """Whether it was not read because the folder holds too many files."""


@dataclass(frozen=True, slots=True)
class Source:
    """A folder of definition files."""

    folder: Path
    scope: Scope
    trusted: bool = True
    """Whether its definitions may be active; an untrusted folder is listed and never shadows anything."""
    root: Path | None = None
    """Links are followed inside this folder only; None means `folder` itself."""
    read: tuple[tuple[RawFile, ...], tuple[Diagnostic, ...]] | None = None
    """What was read of it before and is taken instead of what is there now; None: it is read when asked."""


def standard_sources(
    home: Path,
    project_root: Path | None = None,
    *,
    trusted: Collection[Path] = (),
    named: Iterable[Path] = (),
) -> tuple[Source, ...]:
    """Return the folders definitions are looked for in, whether they exist or not.

    `trusted` holds the folders or project roots the user trusts; a folder in `named` was given explicitly
    for this session, is trusted by that, and outranks the rest.
    """
    trusting = {_real(path) for path in trusted}
    user = Source(home / USER_FOLDER, Scope.USER, root=home)
    sources = [Source(folder, Scope.NAMED) for folder in named] + [user]
    seen = {_real(source.folder) for source in sources}
    if project_root is None:
        return tuple(sources)
    for folder in (project_root / below for below in PROJECT_FOLDERS):
        if _real(folder) not in seen:
            is_trusted = not trusting.isdisjoint((_real(project_root), _real(folder)))
            sources.append(Source(folder, Scope.PROJECT, is_trusted, project_root))
    return tuple(sources)


def read_source(source: Source) -> tuple[list[RawFile], list[Diagnostic]]:
    """Return the `.md` files of a folder, sorted by name, and what is wrong with the folder itself.

    A missing folder is nothing wrong, unless the user named it. Folders below it are not read, and said so.
    """
    if source.read is not None:
        return list(source.read[0]), list(source.read[1])
    try:
        if source.scope in _NEVER_OUTSIDE and not _inside(source.folder, source):
            return [], [_folder_problem(source, "The folder is a link that leads out of the project.")]
        names = sorted(path.name for path in source.folder.iterdir())
    except FileNotFoundError:
        missing = [_folder_problem(source, "There is no such folder.")] if source.scope is Scope.NAMED else []
        return [], missing
    except (OSError, RuntimeError, ValueError) as problem:
        return [], [_folder_problem(source, f"The folder cannot be read: {_reason(problem)}.")]
    files = [name for name in names if name.lower().endswith(".md") and not name.startswith(".")]
    said = list(_remarks(source, names, files))
    documents = [_read(source, source.folder / name) for name in files[:MAX_DOCUMENTS_PER_FOLDER]]
    rest = [
        RawFile(str(source.folder / name), None, over_cap=True) for name in files[MAX_DOCUMENTS_PER_FOLDER:]
    ]
    return documents + rest, said


def _remarks(source: Source, names: list[str], files: list[str]) -> Iterator[Diagnostic]:
    if len(files) > MAX_DOCUMENTS_PER_FOLDER:
        extra = len(files) - MAX_DOCUMENTS_PER_FOLDER
        yield _folder_problem(
            source,
            f"{len(files)} files; the last {extra} by name are over {MAX_DOCUMENTS_PER_FOLDER} and not read.",
        )
    below = [name for name in names if name not in files and (source.folder / name).is_dir()]
    if below:
        message = f"Folders below it are not read: {', '.join(below)}."
        yield Diagnostic(str(source.folder), None, Severity.NOTE, message)


def _folder_problem(source: Source, message: str) -> Diagnostic:
    return Diagnostic(str(source.folder), None, Severity.WARNING, message)


def _read(source: Source, path: Path, hops: int = 1) -> RawFile:
    try:
        if not _inside(path, source):
            return _unread(path, "The link leads out of its folder, so it was not followed.")
        if not path.is_file():
            return _unread(path, "This is not a file, or a link to nothing.")
        data = beginning_of(path, MAX_DOCUMENT_BYTES + 1)
        if hops and (target := symlink_target(data.decode("utf-8", "replace"))):
            linked = path.parent / target
            if _inside(linked, source) and linked.is_file():
                return RawFile(str(path), _read(source, linked, hops - 1).data)
    except (OSError, RuntimeError, ValueError) as problem:
        return _unread(path, f"The file cannot be read: {_reason(problem)}.")
    return RawFile(str(path), data)


def _unread(path: Path, message: str) -> RawFile:
    return RawFile(str(path), None, Diagnostic(str(path), None, Severity.ERROR, message))


def _reason(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def _inside(path: Path, source: Source) -> bool:
    """Say whether `path`, with every link resolved, lies in the root of `source`."""
    target = _real(path)
    if source.scope in _NEVER_OUTSIDE:
        return target.is_relative_to(_real(source.root or source.folder))
    return target.is_relative_to(_real(source.root or source.folder)) or target.is_relative_to(
        _real(source.folder)
    )
