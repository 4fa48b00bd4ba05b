"""Texts that tokenizers count differently: seven scripts, code, JSON, base64. Each of 160 characters."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from itertools import count

CHARS = 160
_SENTENCES = {
    "english": "All human beings are born free and equal in dignity and rights. They are endowed with it. ",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом. ",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. ",
    "arabic": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميراً. ",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। ",
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม ",
    "chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. ",
}


def _code(number: int) -> str:
    return f"def total_{number}(items: list[Item]) -> int:\n    return sum(item.size for item in items)\n\n\n"


def _minified(number: int) -> str:
    return (
        f"function(e,t){{if(e&&e.__esModule)return e;var n={{}};for(var r{number}in e)n[r]=e[r];return n}},"
    )


def _json(number: int) -> str:
    return json.dumps({"id": number, "name": f"item {number}", "tags": ["a", "b"], "ok": True}, indent=1)


def _base64(number: int) -> str:
    return base64.b64encode(hashlib.sha256(str(number).encode()).digest()[:30]).decode()


_MADE: dict[str, Callable[[int], str]] = {
    "python": _code,
    "minified": _minified,
    "json": _json,
    "base64": _base64,
}
KINDS = (*_SENTENCES, *_MADE)


def pair(kind: str) -> tuple[str, str]:
    """Return two texts of one kind; the second goes on where the first ends."""
    make = _MADE.get(kind) or (lambda number: _SENTENCES[kind])
    text = ""
    numbers = count()
    while len(text) < 2 * CHARS:
        text += make(next(numbers))
    return text[:CHARS], text[CHARS : 2 * CHARS]
