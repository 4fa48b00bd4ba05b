"""Definitions of subagents: what one may do, the files they are written in, and the catalog of them.

Cheap to import; YAML is loaded when the first file is parsed.
"""
