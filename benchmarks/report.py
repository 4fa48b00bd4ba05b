"""Prints a benchmark's numbers as JSON and fails when a bound is broken."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bound:
    """A number that must not be above `most`, inclusive."""

    name: str
    value: float
    most: float


def finish(name: str, numbers: Mapping[str, Any], bounds: list[Bound]) -> None:
    """Print one JSON object and exit with 1 when a bound does not hold."""
    broken = [bound for bound in bounds if bound.value > bound.most]
    print(
        json.dumps(
            {
                "benchmark": name,
                **numbers,
                "bounds": {
                    b.name: {"value": round(b.value, 4), "most": b.most, "ok": b.value <= b.most}
                    for b in bounds
                },
            },
            indent=2,
        )
    )
    if broken:
        sys.exit(f"{name}: over the bound: {', '.join(bound.name for bound in broken)}")
