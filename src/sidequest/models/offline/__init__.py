"""The extractive engine behind `offline/extractive`: plain text in, plain text or tool calls out.

Nothing here remembers anything between requests: `engine.respond` decides from one request alone what to
do. Only `wire` knows pydantic-ai; `sidequest.models.extractive` makes a pydantic-ai model of it.
"""
