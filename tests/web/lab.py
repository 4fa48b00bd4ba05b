"""A scripted model: the parent does what the prompt says, subagents wait until they may go on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.support.acts import FOUND, is_summary
from tests.support.gate import Gate
from tests.support.neutral import Reply, Seen

WRITTEN = "hello from the page\n"
LONG = "".join(f"line {number}\n" for number in range(500))
"""A file of more lines than a question shows at once."""
EVIL = (
    "# Report\n\n<script>window.evil = 1</script>\n\n<img src=x onerror='window.evil = 2'>\n\n"
    "[go](javascript:window.evil=3) [out](https://example.org/there)\n\n"
    + "<script>evil</script> filler\n"
    * 7_000
)
"""A report that would act if it could, of more than 200 kB."""


@dataclass
class Lab:
    """The script: `delegate N` starts N delegations, `write` writes a file, `evil` gives that report.

    `run: A && B || C` runs A && B and, at the same time, C.
    """

    gates: dict[str, Gate] = field(default_factory=dict)
    """What the delegation with that number waits at before it reports; none lets it pass."""

    async def __call__(self, seen: Seen) -> Reply | str:
        if is_summary(seen):
            return FOUND
        if any(tool.name == "Task" for tool in seen.tools):
            return self._parent(seen)
        return await self._worker(seen)

    def _parent(self, seen: Seen) -> Reply:
        newest = seen.messages[-1]
        if newest.role != "tool":
            return self._begin(newest.text)
        called = [call.name for call in seen.messages[-2].tool_calls]
        if "Task" in called:
            ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", " ".join(r.text for r in newest.tool_results))
            return Reply("They work.", [("TaskWait", {"delegationIds": ids})])
        return Reply("All **done**.")

    def _begin(self, prompt: str) -> Reply:
        if found := re.search(r"delegate (\d)", prompt):
            numbers = range(1, int(found[1]) + 1)
            return Reply("I hand it on.", [self._task(f"job-{number}") for number in numbers])
        if prompt.startswith("run: "):
            commands = prompt.removeprefix("run: ").split(" || ")
            return Reply("I run it.", [("Bash", {"command": command}) for command in commands])
        if "risky" in prompt:
            task = {"agent": "runner", "task": "Do job-risky.", "description": "Run it"}
            return Reply("I ask.", [("Task", task)])
        if "two writers" in prompt:
            jobs = [{"agent": "writer", "task": f"Do job-w{n}.", "description": "Write"} for n in (1, 2)]
            return Reply("I ask two.", [("Task", job) for job in jobs])
        if "evil" in prompt:
            return Reply("I ask.", [self._task("job-evil")])
        if "write a long file" in prompt:
            return Reply("I write.", [("Write", {"path": "long.txt", "content": LONG})])
        if "write" in prompt:
            return Reply("I write.", [("Write", {"path": "new.txt", "content": WRITTEN})])
        return Reply(f"You said: {prompt}")

    @staticmethod
    def _task(name: str) -> tuple[str, dict[str, object]]:
        return "Task", {"agent": "helper", "task": f"Do {name}.", "description": f"Do {name}"}

    async def _worker(self, seen: Seen) -> Reply:
        newest = seen.messages[-1]
        said = " ".join(message.text for message in seen.messages if message.role == "user")
        jobs = re.findall(r"job-(\w+)", said)
        job = jobs[-1] if jobs else ""
        if newest.role != "tool" and job.startswith("w"):
            return Reply("I write.", [("Write", {"path": f"{job}.txt", "content": job})])
        if newest.role != "tool":
            return Reply("First I read.", [("Read", {"path": "README.md"})])
        if job in self.gates:
            await self.gates[job].wait()
        return Reply(EVIL if job == "evil" else f"Report of {job}: Berths and tides.")
