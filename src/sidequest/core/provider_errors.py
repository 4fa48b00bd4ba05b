"""What a provider meant when it refused a request or cut an answer (specification 6.2, 6.3).

Facts in, one `Meaning` out: its kind says which remedy can help (shrink the input, ask for less output, wait,
repair the history), its numbers say by how much. The sentences are rows of `provider_errors.toml`, tried in
the order of that file: rate limits, broken histories and output caps before overflow, because each of them is
worded like one. What a provider says wrongly or not at all (silent truncation) cannot be seen here.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from sidequest.core.errors import ErrorCode, SidequestError, bounded_message

NEAR_WINDOW_PERCENT = 80
"""Share of the window, inclusive, from which an estimate makes an unexplained refusal look like overflow."""
FULL_WINDOW_PERCENT = 99
"""Share of the window, inclusive, from which a cut answer was cut by the window and not by the output cap."""
MAX_CAUSES = 4
"""How many causes behind an exception are looked at, inclusive (specification 6.2)."""
_HEAD_CHARS, _TAIL_CHARS = 12_000, 4_000


class Kind(StrEnum):
    """What an answer meant. The values are what a user writes in a pattern of their own."""

    INPUT = "input"
    """The input alone is too long: compact, degrade, or take a larger window."""
    SUM = "sum"
    """Input and requested output together are over the window and the input fits: ask for less output."""
    OUTPUT = "output"
    """The requested output is over the model's own cap: lower it, never compact."""
    CUT = "cut"
    """The answer was cut by the output cap it was given: raise it, or ask for less text."""
    RATE = "rate"
    """A quota per time: wait or take another model, never compact."""
    BYTES = "bytes"
    """Too many bytes, or too many or too large images: drop or shrink media and large texts."""
    BROKEN = "broken"
    """Calls without results, or changed thinking blocks: repair the history and resend once."""
    AUTH = "auth"
    NOT_FOUND = "not_found"
    """The provider does not know the model, or the address."""
    NETWORK = "network"
    TIMEOUT = "timeout"
    STREAM = "stream"
    """The answer began and the connection ended before it did."""
    SERVER = "server"
    """The provider failed or is overloaded."""
    CANCELLED = "cancelled"
    REQUEST = "request"
    """Refused for another reason that resending does not cure: a parameter, content filter, billing."""
    UNKNOWN = "unknown"


_CODES: Mapping[Kind, ErrorCode] = MappingProxyType(
    {
        Kind.INPUT: ErrorCode.CONTEXT_TOO_LARGE,
        Kind.SUM: ErrorCode.CONTEXT_TOO_LARGE,
        Kind.BYTES: ErrorCode.CONTEXT_TOO_LARGE,
        Kind.CUT: ErrorCode.SUBAGENT_OUTPUT_TRUNCATED,
        Kind.RATE: ErrorCode.PROVIDER_RATE_LIMITED,
        Kind.AUTH: ErrorCode.PROVIDER_UNAUTHORIZED,
        Kind.NOT_FOUND: ErrorCode.MODEL_NOT_CONFIGURED,
        Kind.NETWORK: ErrorCode.NETWORK_ERROR,
        Kind.TIMEOUT: ErrorCode.TIMEOUT,
        Kind.STREAM: ErrorCode.STREAM_FAILED,
        Kind.CANCELLED: ErrorCode.TURN_ABORTED,
    }
)
_RETRIABLE = frozenset({Kind.RATE, Kind.NETWORK, Kind.TIMEOUT, Kind.STREAM, Kind.SERVER})
_SIZE_STATUSES = frozenset({400, 413, 422})
"""Statuses under which a provider refuses a request for its size."""
_DECIDED: Mapping[int, tuple[Kind, frozenset[Kind]]] = MappingProxyType(
    {
        401: (Kind.AUTH, frozenset()),
        402: (Kind.REQUEST, frozenset()),
        403: (Kind.AUTH, frozenset({Kind.RATE, Kind.REQUEST})),
        404: (Kind.NOT_FOUND, frozenset()),
        408: (Kind.TIMEOUT, frozenset()),
        429: (Kind.RATE, frozenset({Kind.RATE})),
    }
)
"""Statuses that speak for themselves: their kind, and the kinds that wording may still turn it into."""


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """What is known about an answer; every fact may be absent."""

    status: int | None = None
    """HTTP status. Below 400 it says nothing about the error: errors also arrive inside a 200 stream."""
    text: str = ""
    """Body or message, also JSON inside JSON strings."""
    code: str | None = None
    """The provider's own error code, else its error type."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stop_reason: str | None = None
    """Why an answer ended, in the provider's own word: pydantic-ai maps `model_context_window_exceeded` and
    `model_length` to `length` and keeps the word in `provider_details["finish_reason"]`."""
    empty_body: bool = False
    """The answer had a status and no body."""
    estimate: int | None = None
    """Our estimate of the request, in tokens; None and 0 mean unknown."""
    window: int | None = None
    """The window we believe in, in tokens; None and 0 mean unknown."""
    cancelled: bool = False
    network: bool = False
    timed_out: bool = False
    input_tokens: int | None = None
    """Prompt tokens an answer reported, cache reads included."""
    output_tokens: int | None = None
    """Completion tokens an answer reported."""
    hint: Kind | None = None
    """What the client library made of it. Weaker than a known sentence, stronger than nothing."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The single decision about an answer."""

    kind: Kind
    code: ErrorCode
    retriable: bool
    """Whether sending the same request again, later, can help."""
    input_tokens: int | None = None
    """The prompt as the provider counted it."""
    output_tokens: int | None = None
    """The output that was asked for."""
    requested_tokens: int | None = None
    """Input and output together, where the provider says the sum."""
    limit_tokens: int | None = None
    """The limit that was broken, inclusive: of the window, of the prompt, of the output, or of a rate."""
    excess: int | None = None
    """By how many tokens the request was over; stated, or computed from the other numbers."""
    retry_after_s: float | None = None
    incurable: bool = False
    """A rate limit that no waiting cures: one request is over the whole quota, or the account is empty."""
    irreducible: bool = False
    """An input overflow of the fixed part: compaction cannot help."""
    near_limit: bool = False
    """An unexplained 400, 413 or 422 while our estimate is near the window: it deserves one compaction."""
    opaque: bool = False
    """A 400 or 422 without any text: one repair without output parameters is worth it (specification 3.7)."""
    nobody_listens: bool = False
    """This machine refused the connection: a few attempts are enough."""
    provider: str | None = None
    """Name of the row that matched, or None when status or class decided."""
    message: str = ""
    """What the provider said, at most 600 characters, secrets removed."""


_NUMBER = r"(?P<{}>\d{{1,18}}(?:[,_]\d{{2,3}}){{0,6}})"
_GROUPS = ("input", "output", "limit", "requested", "excess")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sentence, or a code, that says one kind of thing; builtin rows and a user's own are alike.

    Raises:
        SidequestError: `SETTINGS_INVALID` when `regex` is not a regular expression.
    """

    name: str
    kind: Kind
    regex: str = ""
    """Searched, ignoring case, in the flattened text; empty matches none. `{input}`, `{output}`, `{limit}`,
    `{requested}` and `{excess}` stand for a number captured under that name; a group `used` means `input`."""
    codes: tuple[str, ...] = ()
    """Provider codes that match without any text, compared ignoring case."""
    statuses: frozenset[int] | None = None
    """HTTP statuses the pattern is for; None: any. A missing status always passes: empty means only that."""
    irreducible: bool = False
    incurable: bool = False
    limit_exclusive: bool = False
    """The stated limit is the first value that is refused; `Meaning.limit_tokens` is one less."""
    compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        source = self.regex or r"(?!)"
        for group in _GROUPS:
            source = source.replace(f"{{{group}}}", _NUMBER.format(group))
        try:
            compiled = re.compile(source, re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            raise _invalid(self.name, f"has a regex that does not compile: {error}") from error
        object.__setattr__(self, "compiled", compiled)

    @classmethod
    def from_mapping(cls, row: Mapping[str, object]) -> Pattern:
        """Build a pattern from a table of the settings or of the data file; its keys are the fields.

        Raises:
            SidequestError: `SETTINGS_INVALID`, naming the pattern and what is wrong with it.
        """
        name, kind, regex = (str(row.get(key, "")) for key in ("name", "kind", "regex"))
        codes, statuses = row.get("codes", []), row.get("statuses")
        if unknown := sorted(set(row) - _KEYS):
            raise _invalid(name, f"has the unknown key {unknown[0]!r}")
        if not name or kind not in set(Kind):
            raise _invalid(name, f"has the kind {kind!r}" if name else "has no name")
        if not isinstance(codes, list) or not (regex or codes):
            raise _invalid(name, "needs a regex, or codes as a list")
        if statuses is not None and not (
            isinstance(statuses, list) and all(type(s) is int for s in statuses)
        ):
            raise _invalid(name, "needs its statuses as a list of numbers")
        return cls(
            name,
            Kind(kind),
            regex,
            tuple(str(code) for code in codes),
            None if statuses is None else frozenset(statuses),
            irreducible=row.get("irreducible") is True,
            incurable=row.get("incurable") is True,
            limit_exclusive=row.get("limit_exclusive") is True,
        )

    def match(self, text: str, code: str | None, status: int | None) -> dict[str, int] | None:
        """Return the numbers of the innermost place where `text` matches, or None when nothing does.

        `text` is flattened, so what an outer layer quotes comes last: the last match is the innermost.
        """
        if status is not None and self.statuses is not None and status not in self.statuses:
            return None
        if found := deque(self.compiled.finditer(text), maxlen=1):
            return _numbers(found[0].groupdict(), exclusive=self.limit_exclusive)
        return {} if code and code.lower() in {c.lower() for c in self.codes} else None


_KEYS = frozenset(
    {"name", "kind", "regex", "codes", "statuses", "irreducible", "incurable", "limit_exclusive"}
)


def _invalid(name: str, fault: str) -> SidequestError:
    return SidequestError(
        ErrorCode.SETTINGS_INVALID,
        f"The provider error pattern {name} {fault}.",
        f"Give it a name, a regex and a kind out of: {', '.join(Kind)}.",
        pattern=name,
    )


def _numbers(groups: Mapping[str, str | None], *, exclusive: bool) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for name, raw in groups.items():
        digits = (raw or "").replace(",", "").replace("_", "")
        if digits.isdecimal() and len(digits) <= 18:
            numbers["input" if name == "used" else name] = int(digits)
    if exclusive and "limit" in numbers:
        numbers["limit"] -= 1
    return numbers


@cache
def builtin_patterns() -> tuple[Pattern, ...]:
    """Return the rows of `provider_errors.toml` in their order, read once per process."""
    text = files("sidequest.core").joinpath("provider_errors.toml").read_text(encoding="utf-8")
    return tuple(Pattern.from_mapping(row) for row in tomllib.loads(text)["pattern"])


_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|([nrt]))?")


def _unescape(found: re.Match[str]) -> str:
    code, blank = found.groups()
    if code is None:
        return " " if blank else ""
    value = int(code, 16)
    return " " if value < 0x20 or 0xD800 <= value <= 0xDFFF else chr(value)


def flatten(text: str) -> str:
    """Return `text` as one line without escapes, whatever number of JSON strings it is wrapped in.

    Bounded: of more than 16,000 characters the first 12,000 and the last 4,000 are kept.
    """
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]} {text[-_TAIL_CHARS:]}"
    return " ".join(_ESCAPE.sub(_unescape, text).split())


_LEADING_STATUS = re.compile(
    r"^(?:HTTP(?:/[\d.]{1,3})? )?(?:error:? )?([45]\d\d)\b(?! tokens)"
    r"|\b(?:status[ _]?code|error code|http(?: status)?|status)[\"']?:? ?\(?([45]\d\d)\b",
    re.IGNORECASE,
)
_BRACED_STATUS = re.compile(r"\(([45]\d\d)\)")
_NO_BODY = re.compile(r"^(?:error code: )?\d{3}(?: status code)?(?: \(no body\))?\.?$", re.IGNORECASE)
_CERTIFICATE = re.compile(r"certificate|CERT_|self.signed", re.IGNORECASE)
_FULL_WINDOW_STOPS = frozenset({"model_context_window_exceeded", "model_length"})
_CUT_STOPS = frozenset({"length", "max_tokens", "max_output_tokens"})
_REFUSED_STOPS = frozenset({"content_filter", "refusal", "safety", "prohibited_content", "blocklist"})
_ABORTED_STOPS = frozenset({"aborted", "cancelled", "canceled"})


class _Verdict(NamedTuple):
    kind: Kind
    pattern: Pattern | None = None
    numbers: Mapping[str, int] = MappingProxyType({})


def classify(
    facts: ProviderFacts, *, extra_patterns: Iterable[Pattern] = (), now: datetime | None = None
) -> Meaning:
    """Decide what an answer meant. Never raises, whatever the text.

    Order: cancelled; the user's `extra_patterns`; a stop reason that tells; timeout and network; statuses
    that speak for themselves (401, 402, 403, 404, 408, 429); the builtin rows; a bare 400 or 413 near the
    window; the client library's opinion; the rest of the statuses. `now` turns a Retry-After date into
    seconds; without it such a date is ignored. Worked number: a bare 413 with an estimate of 160,000 and a
    window of 200,000 tokens is `INPUT`, with 159,999 it is `UNKNOWN`.
    """
    text = flatten(facts.text)
    status = facts.status if facts.status is not None and facts.status >= 400 else _status_in(text)
    verdict = _decide(facts, text, status, tuple(extra_patterns))
    return _meaning(_reconciled(verdict), facts, text, status, now)


def stop_kind(facts: ProviderFacts) -> Kind | None:
    """Return what the end of a 200 answer says, or None when it ended well or says nothing.

    `INPUT` when the provider says that the window is full, when a cut answer fills 99 % of it, or when more
    than the window was accepted and our own estimate agrees that it is near. `CUT` when the output cap cut
    it, `REQUEST` when a filter did.
    Worked number: `length` with 198,000 tokens in and none out of a window of 200,000 is `INPUT`.
    """
    reason = (facts.stop_reason or "").strip().lower()
    prompt, window = facts.input_tokens or 0, facts.window or 0
    if reason in _FULL_WINDOW_STOPS:
        return Kind.INPUT
    if reason in _CUT_STOPS:
        used = prompt + (facts.output_tokens or 0)
        full = prompt > 0 and window > 0 and used * 100 >= window * FULL_WINDOW_PERCENT
        return Kind.INPUT if full else Kind.CUT
    if reason in _REFUSED_STOPS:
        return Kind.REQUEST
    if reason in _ABORTED_STOPS:
        return Kind.CANCELLED
    return Kind.INPUT if prompt > window > 0 and _near(facts) else None


def _decide(facts: ProviderFacts, text: str, status: int | None, extra: tuple[Pattern, ...]) -> _Verdict:
    def look(patterns: Iterable[Pattern], kinds: Collection[Kind] | None = None) -> _Verdict | None:
        for pattern in patterns:
            if kinds is not None and pattern.kind not in kinds:
                continue
            if (numbers := pattern.match(text, facts.code, status)) is not None:
                return _Verdict(pattern.kind, pattern, numbers)
        return None

    if facts.cancelled:
        return _Verdict(Kind.CANCELLED)
    if verdict := look(extra):
        return verdict
    if status is None:
        if (kind := _without_status(facts)) is not None:
            kinds = {kind, Kind.STREAM} if kind is Kind.NETWORK else {kind}
            return look(builtin_patterns(), kinds) or _Verdict(kind)
    elif status in _DECIDED:
        kind, other = _DECIDED[status]
        return look(builtin_patterns(), other) or _Verdict(kind)
    if verdict := look(builtin_patterns()):
        return verdict
    if status in {400, 413} and _bare(facts, text) and _near(facts):
        return _Verdict(Kind.INPUT)
    if facts.hint is not None:
        return _Verdict(facts.hint)
    return _Verdict(_kind_of_status(status or _status_in(text, braced=True) or 0))


def _without_status(facts: ProviderFacts) -> Kind | None:
    if (kind := stop_kind(facts)) is not None:
        return kind
    if facts.timed_out:
        return Kind.TIMEOUT
    if facts.network:
        return Kind.NETWORK
    # pydantic-ai finds an overflow by short phrases that other kinds share; its other classes are certain.
    return facts.hint if facts.hint is not Kind.INPUT else None


def _bare(facts: ProviderFacts, text: str) -> bool:
    return facts.empty_body or not text or _NO_BODY.match(text) is not None


def _near(facts: ProviderFacts) -> bool:
    estimate, window = facts.estimate or 0, facts.window or 0
    return window > 0 and estimate * 100 >= window * NEAR_WINDOW_PERCENT


def _status_in(text: str, *, braced: bool = False) -> int | None:
    found = (_BRACED_STATUS if braced else _LEADING_STATUS).search(text)
    return int(next(group for group in found.groups() if group)) if found else None


def _kind_of_status(status: int) -> Kind:
    kind, _ = _DECIDED.get(status, (Kind.SERVER if status >= 500 else Kind.UNKNOWN, None))
    return kind


def _reconciled(verdict: _Verdict) -> _Verdict:
    """Complete the numbers, and let them correct the kind: a sum whose input alone is over is an input."""
    kind, pattern, numbers = verdict.kind, verdict.pattern, dict(verdict.numbers)
    output, limit, requested = numbers.get("output"), numbers.get("limit"), numbers.get("requested")
    if kind is Kind.SUM and requested is not None and output is not None and requested >= output:
        numbers.setdefault("input", requested - output)
    prompt = numbers.get("input")
    if kind is Kind.SUM and (output == 0 or (prompt or 0) >= (limit or math.inf)):
        kind = Kind.INPUT
    parts = [part for part in (prompt, output) if part is not None]
    total = requested if requested is not None else sum(parts) if parts else None
    if limit is not None and total is not None and total > limit:
        numbers.setdefault("excess", total - limit)
    return _Verdict(kind, pattern, numbers)


def _meaning(
    verdict: _Verdict, facts: ProviderFacts, text: str, status: int | None, now: datetime | None
) -> Meaning:
    kind, pattern, numbers = verdict
    unexplained = kind is Kind.UNKNOWN and status in _SIZE_STATUSES
    over_quota = kind is Kind.RATE and numbers.get("requested", 0) > numbers.get("limit", math.inf)
    incurable = over_quota or (pattern is not None and pattern.incurable)
    retriable = kind in _RETRIABLE or (kind is Kind.UNKNOWN and not unexplained)
    if incurable or (kind is Kind.NETWORK and _CERTIFICATE.search(text)):
        retriable = False
    # Specification 6.2 calls every 413 CONTEXT_TOO_LARGE, also one that nothing explains.
    fallback = ErrorCode.CONTEXT_TOO_LARGE if unexplained and status == 413 else ErrorCode.PROVIDER_ERROR
    return Meaning(
        kind=kind,
        code=_CODES.get(kind, fallback),
        retriable=retriable,
        input_tokens=numbers.get("input"),
        output_tokens=numbers.get("output"),
        requested_tokens=numbers.get("requested"),
        limit_tokens=numbers.get("limit"),
        excess=numbers.get("excess"),
        retry_after_s=retry_after_seconds(facts.headers, now),
        incurable=incurable,
        irreducible=pattern is not None and pattern.irreducible,
        near_limit=unexplained and _near(facts),
        opaque=unexplained and status != 413 and _bare(facts, text),
        provider=pattern.name if pattern is not None else None,
        message=bounded_message(_readable(facts.text) or text) or _default_message(facts, status),
    )


def _default_message(facts: ProviderFacts, status: int | None) -> str:
    if status is not None:
        return f"The provider answered with status {status} and no text."
    if facts.stop_reason:
        return f"The answer ended with the reason {facts.stop_reason}."
    return "The provider gave no reason."


def _readable(text: str) -> str:
    """Return the sentence inside a JSON body, or nothing when there is no such sentence."""
    body: object = None
    with suppress(ValueError, RecursionError):
        body = json.loads(text)
    for key in ("error", "message", "msg", "detail", "status_msg"):
        if isinstance(body, Mapping) and body.get(key):
            body = body[key]
    return " ".join(body.split()) if isinstance(body, str) else ""


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds the provider asks to wait, or None when it does not say.

    In the order of specification 3.7: `retry-after-ms`, then `retry-after` in seconds, then as an HTTP date,
    which needs `now`; a date in the past gives 0. Header names ignore case. Worked number: 1500 ms is 1.5.
    """
    lower = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    raw = lower.get("retry-after", "")
    for value, unit in ((lower.get("retry-after-ms", ""), 1000), (raw, 1)):
        with suppress(ValueError):
            seconds = float(value) / unit
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
    if now is None:
        return None
    with suppress(ValueError, TypeError, OverflowError, IndexError):
        return max(0.0, (_aware(parsedate_to_datetime(raw)) - _aware(now)).total_seconds())
    return None


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_CANCELLED_CLASSES = frozenset({"CancelledError", "RunCancelled", "AbortError", "KeyboardInterrupt"})
_NETWORK_CLASSES = frozenset(
    {
        "APIConnectionError",
        "ClientConnectionError",
        "ConnectionError",
        "EndpointConnectionError",
        "ModelConnectionError",
        "SSLError",
        "TransportError",
        "gaierror",
    }
)
_CLIENT_PACKAGES = frozenset(
    [
        "pydantic_ai",
        "openai",
        "anthropic",
        "google",
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "h11",
        "anyio",
        "aiohttp",
        "requests",
        "urllib3",
        "botocore",
        "groq",
        "mistralai",
        "cohere",
        "huggingface_hub",
        "xai_sdk",
        "grpc",
        "websockets",
    ]
)
"""Packages whose exceptions are told to us by a provider or by the way to it."""
_HINTS: Mapping[str, Kind] = MappingProxyType(
    {
        "ConcurrencyLimitExceeded": Kind.REQUEST,
        "ContentFilterError": Kind.REQUEST,
        "ContentFilterFinishReasonError": Kind.REQUEST,
        "IncompleteToolCall": Kind.CUT,
        "LengthFinishReasonError": Kind.CUT,
        "ModelAuthenticationError": Kind.AUTH,
        "ModelContextWindowExceededError": Kind.INPUT,
        "ModelNotFoundError": Kind.NOT_FOUND,
        "ModelQuotaExceededError": Kind.REQUEST,
        "ModelRateLimitError": Kind.RATE,
        "ModelServerError": Kind.SERVER,
        "ModelUnavailableError": Kind.SERVER,
        "UsageLimitExceeded": Kind.REQUEST,
        "UserError": Kind.REQUEST,
    }
)
"""Classes of pydantic-ai and the SDKs that say something, by name: this module imports none of them."""


def facts_from_exception(
    exc: BaseException, *, estimate: int | None = None, window: int | None = None
) -> ProviderFacts:
    """Read the facts out of an exception of pydantic-ai, an SDK, an HTTP client or the standard library.

    Looks at attributes and class names along the causes, at most 4 deep, and stops at the first exception
    that has a status or is a network or timeout error: what lies behind it may belong to an earlier attempt.
    Only the outermost exception can mean "cancelled", because a timeout is often caused by a cancellation.
    A pydantic-ai `RunTimedOut` counts as cancelled. `estimate` and `window` are in tokens, passed through.
    """
    links = _chain(exc)
    decisive = next((link for link in links if _status_of(link) or _transport(link)), None)
    seen = links if decisive is None else links[: links.index(decisive) + 1]
    status = _status_of(decisive) if decisive is not None else None
    bodies = [(link, _body_of(link)) for link in seen]
    body = next((found for _, found in bodies if found), None)
    transport = _transport(decisive) if decisive is not None and status is None else None
    # Behind a network error the causes hold the reason, for example a certificate that was refused.
    speakers = [link for link in links if _status_of(link) is None] if transport else seen
    said = " | ".join(dict.fromkeys(map(_message_of, speakers)))
    empty = status is not None and not body and any(found is not None for _, found in bodies)
    return ProviderFacts(
        status=status,
        text=_as_text(body) if body else "" if empty else said,
        code=next(filter(None, (_code_of(link, found) for link, found in bodies)), None),
        headers=next(filter(None, map(_headers_of, seen)), MappingProxyType({})),
        empty_body=empty,
        estimate=estimate,
        window=window,
        cancelled=bool(_names(exc) & _CANCELLED_CLASSES),
        network=transport is Kind.NETWORK,
        timed_out=transport is Kind.TIMEOUT,
        hint=next((_HINTS[name] for link in seen for name in _mro(link) if name in _HINTS), None),
    )


def came_from_provider(exc: BaseException) -> bool:
    """Say whether an exception of a model's request can be the answer of a provider, or of the way to it.

    Anything else is a defect of the model's own code, and sending the request again would not help.
    """
    return any(
        isinstance(link, OSError | TimeoutError)
        or _status_of(link) is not None
        or any(cls.__module__.split(".")[0] in _CLIENT_PACKAGES for cls in type(link).__mro__)
        for link in _chain(exc)
    )


def _chain(exc: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    current: BaseException | None = exc
    while current is not None and len(links) <= MAX_CAUSES and not any(current is link for link in links):
        links.append(current)
        if isinstance(current, BaseExceptionGroup):
            current = current.exceptions[0]
        elif current.__cause__ is not None or current.__suppress_context__:
            current = current.__cause__
        else:
            current = current.__context__
    return links


def _mro(link: BaseException) -> list[str]:
    return [cls.__name__ for cls in type(link).__mro__]


def _names(link: BaseException) -> frozenset[str]:
    return frozenset(_mro(link))


def _transport(link: BaseException) -> Kind | None:
    names = _names(link)
    if any("Timeout" in name or "TimedOut" in name for name in names):
        return Kind.TIMEOUT
    return Kind.NETWORK if names & _NETWORK_CLASSES else None


def _attr(owner: object, name: str) -> object:
    """Return an attribute or None; properties of errors raise when they have nothing to give.

    httpx raises for the text of a stream that was not read, pydantic-ai for the response of a cancelled run.
    """
    with suppress(AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return getattr(owner, name)
    return None


def _status_of(link: BaseException) -> int | None:
    response = _attr(link, "response")
    # botocore's response is a dictionary; google-genai puts the status into `code`.
    meta = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    candidates = (
        _attr(link, "status_code"),
        _attr(response, "status_code"),
        meta.get("HTTPStatusCode") if isinstance(meta, Mapping) else None,
        _attr(link, "status"),
        _attr(link, "code"),
    )
    return next((value for value in candidates if type(value) is int and 400 <= value <= 599), None)


def _body_of(link: BaseException) -> object:
    """Return the body, parsed or as text; an empty value when there was none; None when nothing is known."""
    if "UnexpectedModelBehavior" in _names(link):
        return None  # its body is the model's own answer, not an error text
    response = _attr(link, "response")
    if isinstance(response, Mapping):
        return response.get("Error")
    for owner, name in ((link, "body"), (link, "details"), (response, "text")):
        value = _attr(owner, name)
        if isinstance(value, str | bytes | Mapping | list):
            return value.strip() if isinstance(value, str | bytes) else value
    return "" if "body" in vars(link) and _status_of(link) is not None else None


def _as_text(body: object) -> str:
    if isinstance(body, bytes):
        return body.decode(errors="replace")
    if isinstance(body, str):
        return body
    try:
        return json.dumps(body, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(body)


def _message_of(link: BaseException) -> str:
    message = _attr(link, "message")
    return message if isinstance(message, str) and message else str(link) or type(link).__name__


def _code_of(link: BaseException, body: object) -> str | None:
    """Return the provider's code, else its error type, from attributes or from the body."""
    error = body.get("error", body) if isinstance(body, Mapping) else None
    fields = error if isinstance(error, Mapping) else {}
    base = body.get("base_resp") if isinstance(body, Mapping) else None
    candidates = (
        _attr(link, "provider_error_code"),
        _attr(link, "code"),
        fields.get("code"),
        fields.get("Code"),
        base.get("status_code") if isinstance(base, Mapping) else None,
        _attr(link, "provider_error_type"),
        fields.get("status"),
        fields.get("type"),
    )
    status = str(_status_of(link))
    return next((str(c) for c in candidates if isinstance(c, str | int) and c and str(c) != status), None)


def _headers_of(link: BaseException) -> Mapping[str, str]:
    response = _attr(link, "response")
    meta = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    nested = meta.get("HTTPHeaders") if isinstance(meta, Mapping) else None
    for headers in (_attr(link, "headers"), _attr(response, "headers"), nested):
        if isinstance(headers, Mapping) and headers:
            return {str(name).lower(): str(value) for name, value in headers.items()}
    wait = _attr(link, "retry_after")
    return {"retry-after": str(wait)} if isinstance(wait, int | float) else {}
