"""Measures what a request carries beside its messages: instructions, tool schemas, the form of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai.profiles import DEFAULT_PROMPTED_OUTPUT_TEMPLATE
from pydantic_ai.tools import ToolDefinition

from sidequest.core.tokens import Overhead, compact_json, estimate_text

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.profiles import ModelProfile


class OverheadMeter:
    """Counts it in tokens; a schema that was counted before is not weighed again."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[str, str | None, str], int] = {}

    def measure(self, parameters: ModelRequestParameters, model: Model) -> Overhead:
        """Return what a request to `model` carries beside its messages."""
        instructions = sum(estimate_text(part.content) for part in parameters.instruction_parts or ())
        tools = sum(map(self._tool_tokens, parameters.function_tools))
        tools += sum(estimate_text(str(tool)) for tool in parameters.native_tools)
        # Of a structured output only the form is sent that the mode asks for; the model chooses with "auto".
        as_tools = as_text = 0
        if parameters.output_mode in ("tool", "auto"):
            as_tools = sum(map(self._tool_tokens, parameters.output_tools))
        if parameters.output_mode in ("native", "prompted", "auto"):
            as_text = self._output_tokens(parameters, model)
        return Overhead(instructions, tools + max(as_tools, as_text))

    def _output_tokens(self, parameters: ModelRequestParameters, model: Model) -> int:
        """Count a schema that the output must have, beside the tools or within the instructions."""
        output = parameters.output_object
        if output is None:
            return 0
        profile = _profile_of(model)
        native = parameters.output_mode == "native"
        tokens = self._schema_tokens(output.name or "", output.description, output.json_schema)
        template = parameters.prompted_output_template
        if template is None and (
            not native or profile.get("native_output_requires_schema_in_instructions", False)
        ):
            template = profile.get("prompted_output_template", DEFAULT_PROMPTED_OUTPUT_TEMPLATE)
        if not template:
            return tokens
        # A native mode sends the schema to the server too.
        return estimate_text(template) + (2 * tokens if native else tokens)

    def _tool_tokens(self, tool: ToolDefinition) -> int:
        returned = tool.return_schema if tool.include_return_schema else None
        tokens = self._schema_tokens(tool.name, tool.description, tool.parameters_json_schema)
        return tokens + (estimate_text(compact_json(returned)) if returned else 0)

    def _schema_tokens(self, name: str, description: str | None, schema: dict[str, Any]) -> int:
        key = name, description, compact_json(schema)
        if key not in self._schemas:
            self._schemas[key] = estimate_text(f"{name}{description or ''}{key[2]}")
        return self._schemas[key]


def _profile_of(model: Model) -> ModelProfile:
    try:
        return model.profile
    except NotImplementedError:  # several models behind one
        return {}
