"""Words that say little about what to look for."""

from __future__ import annotations

_STOP_TEXT = """
a about above across after again against all almost also always am an and another any anything are
as at back be because been before begin begins being below between both but by called can
cannot come contain contains containing could describe determine did do does doing done each either
else etc even ever every everything exactly explain find first follow following for from further get
give given go goes had happen happens has have having he her here his how however i identify if in
include including inside instead into is it its itself just keep know last least less let like list
locate look made make makes many may me might mine more most much must my need never next no
not nothing now of off on once one only onto or other our out over own per please precise precisely
put quote read really report say search see shall she should show since so some something state
still such summarise summarize take tell than thank thanks that the their them then there these they
thing things this those three through to together too two under until up upon us use used uses using
very via want was way we well were what when where whether which while who whole whose why will with
within without work works would write written yes yet you your
"""
STOP = frozenset(_STOP_TEXT.split())
"""Words that say nothing about what to look for."""

_COMMON_TEXT = """
answer call calls class classes code codebase constant constants current declared define defined defines
definition definitions directory docs documentation exact file files folder function functions line
lines located location method methods module modules name number numbers occurrence occurrences path
paths place places project question reference references repo repository source set
sets start starts state test tests text tree type usage usages value values variable variables
"""
COMMON = frozenset(_COMMON_TEXT.split())
"""Words about code in general: they count on a line, but are not searched for."""
