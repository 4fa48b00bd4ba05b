"""Models, numbers, thinking levels and context modes, as people write them (specification 4.3, 4.5, 8.16)."""

from __future__ import annotations

import re

from sidequest.core.budget import MAX_OUTPUT_CAP_TOKENS
from sidequest.core.context_modes import ContextMode, parse_context_mode
from sidequest.subagents.definition import ModelPin, Thinking
from sidequest.subagents.diagnostics import Log
from sidequest.subagents.fields import Fields, scalar, words
from sidequest.subagents.frontmatter import Value
from sidequest.subagents.keys import Key, plain_key

_SESSION_MODEL = frozenset({"inherit", "default", "session", "none"})
_ALIASES = frozenset({"sonnet", "opus", "haiku", "fable"})
_THINKING = {level.value: level for level in Thinking} | {
    "none": Thinking.OFF,
    "false": Thinking.OFF,
    "no": Thinking.OFF,
    "min": Thinking.MINIMAL,
    "med": Thinking.MEDIUM,
    "extrahigh": Thinking.XHIGH,
    "maximum": Thinking.MAX,
}
MOST_TURNS = 1_000_000
"""Most turns a definition may ask for, inclusive."""
_NO_NUMBER = frozenset({"", "none"})
_YES = frozenset({"true", "yes", "on"})
_NO = frozenset({"false", "no", "off"})


def thinking_word(text: str) -> Thinking | None:
    """Return the level that `text` names, in any case and with or without dashes, or None."""
    return _THINKING.get(plain_key(text))


def is_yes(text: str) -> bool:
    """Say whether `text` is a yes of YAML."""
    return text.strip().lower() in _YES


def is_no(text: str) -> bool:
    """Say whether `text` is a no of YAML."""
    return text.strip().lower() in _NO


def read_models(fields: Fields, log: Log) -> tuple[ModelPin | None, tuple[ModelPin, ...]]:
    """Return the pin and the fallbacks; the first of a list or of alternatives is the pin.

    `inherit` as the first entry leaves the session's model. A pin that cannot be read is an error, never
    another model (specification 3.3); whether a readable one exists is not asked here.
    """
    listed = _pins(fields, Key.MODEL, log)
    alternatives = _pins(fields, Key.FALLBACK_MODELS, log)
    provider, line = fields.text(Key.PROVIDER)
    if provider and not listed:
        log.error(f"`provider: {provider}` needs a `model` beside it.", line)
    first = _with_provider(listed[0], provider) if listed else None
    field = fields.one(Key.MODEL)
    if len(listed) > 1 and field:
        log.note(
            f"`{field.name}` names {len(listed)}: the first is the model, the rest are fallbacks.", field.line
        )
    primary = None if first is None or first.key == "inherit" else first
    seen = {primary.key.lower()} if primary else set()
    fallbacks = []
    for pin in (*listed[1:], *alternatives):
        if pin.key != "inherit" and pin.key.lower() not in seen:
            seen.add(pin.key.lower())
            fallbacks.append(pin)
    return primary, tuple(fallbacks)


def parse_pin(text: str) -> ModelPin | None:
    """Return the one model that `text` names, such as `a/b` or `a/b|high`; None when it is not one model."""
    log = Log("")
    pins = _alternatives(text, "model", 1, log) if "," not in text else []
    return pins[0] if len(pins) == 1 and pins[0].key != "inherit" and not log.failed else None


def _with_provider(pin: ModelPin, provider: str) -> ModelPin:
    if not provider or pin.key == "inherit" or pin.key.startswith(f"{provider}/"):
        return pin
    return ModelPin(f"{provider}/{pin.key}", pin.thinking)


def _pins(fields: Fields, key: Key, log: Log) -> list[ModelPin]:
    field = fields.one(key)
    if field is None:
        return []
    items = field.value if isinstance(field.value, list) else [field.value]
    pins: list[ModelPin] = []
    for item in items:
        if not isinstance(item, str):
            log.error(f"`{field.name}` is a model, or a list of models, each provider/model.", field.line)
            continue
        for text in item.split(","):
            pins += _alternatives(text, field.name, field.line, log)
    return pins


def _alternatives(text: str, name: str, line: int, log: Log) -> list[ModelPin]:
    r"""Read `a/b`, `a/b|high`, or a sentence such as `GPT-4.1 | 'gpt-5'`."""
    parts = [" ".join(part.strip().strip("\"'").split()) for part in text.strip().split("|")]
    if parts == [""] or parts[0].lower() in ("~", "null"):
        return []
    level = thinking_word(parts[-1]) if len(parts) > 1 else None
    if level:
        parts.pop()
    elif re.fullmatch(r"[^\s|]+/[^\s|]+\|[^\s|/]*", text.strip()):
        log.error(f"`{name}`: {parts[-1]!r} is no thinking level; one of {', '.join(Thinking)}.", line)
        return []
    pins = []
    for index, key in enumerate(parts):
        if not key or key.startswith("/") or key.endswith("/"):
            log.error(f"`{name}`: {text.strip()!r} is not a model; write provider/model.", line)
            return []
        pins.append(ModelPin(_alias(key), level if index == len(parts) - 1 else None))
    return pins


def _alias(key: str) -> str:
    lower = key.lower()
    if lower in _SESSION_MODEL:
        return "inherit"
    return lower if lower in _ALIASES else key


def read_thinking(fields: Fields, log: Log) -> Thinking | None:
    """Return the thinking level; an unknown word is a warning and not used."""
    text, line = fields.text(Key.THINKING)
    if not text or plain_key(text) in ("inherit", "default"):
        return None
    level = thinking_word(text)
    if level is None:
        log.warn(f"{text!r} is no thinking level and was not used; one of {', '.join(Thinking)}.", line)
    return level


def read_max_tokens(fields: Fields, log: Log) -> int | None:
    """Return the output cap in tokens, 1 to 200,000; None follows the model.

    Absent, `none` and 0 mean None; a larger number is clamped; negative, fractional and anything else is
    not used; both with a warning (decision record 0210 clause 2). Worked number: 200,001 gives 200,000.
    """
    number = _whole_number(fields, Key.MAX_TOKENS, log)
    if number is not None and number > MAX_OUTPUT_CAP_TOKENS:
        log.warn(
            f"`maxTokens` is at most {MAX_OUTPUT_CAP_TOKENS}; it was lowered to that.",
            fields.text(Key.MAX_TOKENS)[1],
        )
        return MAX_OUTPUT_CAP_TOKENS
    return number


def read_max_turns(fields: Fields, log: Log) -> int | None:
    """Return the most requests of one run, at most a million; None, `none` and 0 mean no limit."""
    number = _whole_number(fields, Key.MAX_TURNS, log)
    if number is not None and number > MOST_TURNS:
        log.warn(
            f"`maxTurns` is at most {MOST_TURNS}; it was lowered to that.", fields.text(Key.MAX_TURNS)[1]
        )
        return MOST_TURNS
    return number


def read_max_seconds(fields: Fields, log: Log) -> float | None:
    """Return the most seconds of one run; None, `none` and 0 mean no limit. `timeout_mins` is in minutes."""
    field = fields.one(Key.MAX_SECONDS)
    number = _positive_number(fields, Key.MAX_SECONDS, log)
    if number is None or field is None:
        return None
    return number * 60 if plain_key(field.name) == "timeoutmins" else number


def read_max_cost(fields: Fields, log: Log) -> float | None:
    """Return the most US dollars of one run; None, `none` and 0 mean no limit."""
    return _positive_number(fields, Key.MAX_COST, log)


def _positive_number(fields: Fields, key: Key, log: Log) -> float | None:
    text, line = fields.text(key)
    if text.lower() in _NO_NUMBER:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text):
        log.warn(f"`{key.value}` is a number from 0; {text[:40]!r} was not used.", line)
        return None
    return float(text) or None


def _whole_number(fields: Fields, key: Key, log: Log) -> int | None:
    text, line = fields.text(key)
    if text.lower() in _NO_NUMBER:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,4000}(?:\.0+)?", text) or int(text.split(".")[0]) < 0:
        log.warn(f"`{key.value}` is a whole number from 0; {text[:40]!r} was not used.", line)
        return None
    return int(text.split(".")[0]) or None


def read_contexts(fields: Fields, log: Log) -> tuple[ContextMode | None, tuple[ContextMode, ...]]:
    """Return the default context mode and the allowed ones (specification 8.19).

    Unknown words are warnings. A restriction in which nothing is understood allows `independent` only,
    because reading it as "everything" would show the parent's conversation against the author's wish.
    """
    field = fields.one(Key.CONTEXT)
    default = None
    if field is not None:
        default = _mode(field.name, field.value)
        if default is None and scalar(field.value) != "":
            log.warn(f"`{field.name}` is independent or fork; it was not used.", field.line)
    return default, _allowed(fields, log)


def _mode(name: str, value: Value) -> ContextMode | None:
    text = scalar(value) or ""
    if plain_key(name) in ("fork", "inheritcontext") and (is_yes(text) or is_no(text)):
        return ContextMode.FORK if is_yes(text) else ContextMode.INDEPENDENT
    return parse_context_mode(text)


def _allowed(fields: Fields, log: Log) -> tuple[ContextMode, ...]:
    """Return what every key that restricts the modes allows, in the order of the first one."""
    allowed: tuple[ContextMode, ...] | None = None
    for field in fields.all(Key.ALLOWED_CONTEXTS):
        if scalar(field.value) == "" or field.value == []:
            continue
        names, strange = words(field.value)
        modes = tuple(dict.fromkeys(mode for name in names if (mode := parse_context_mode(name))))
        if strange or not modes or any(parse_context_mode(name) is None for name in names):
            log.warn(f"`{field.name}` lists independent and fork; other words were left out.", field.line)
        allowed = modes if allowed is None else tuple(mode for mode in allowed if mode in modes)
    return () if allowed is None else allowed or (ContextMode.INDEPENDENT,)
