"""`import sidequest`: everything a library user needs, loaded at first use."""

from __future__ import annotations

import ast
from importlib.metadata import version
from pathlib import Path

import pytest

import sidequest
from tests.surfaces.test_cli_help import loaded_by


def test_the_import_alone_loads_nothing_heavy():
    assert loaded_by("import sidequest").isdisjoint({"pydantic_ai", "pydantic", "yaml", "typer", "rich"})


@pytest.mark.parametrize("name", sidequest.__all__)
def test_every_public_name_is_there_and_documented(name: str):
    value = getattr(sidequest, name)
    assert name in dir(sidequest)
    assert value == version("sidequest") if name == "__version__" else value.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = sidequest.Sesion


def test_type_checkers_see_the_same_names():
    module = ast.parse(Path(sidequest.__file__).read_text("utf-8"))
    branch = next(node for node in module.body if isinstance(node, ast.If))
    seen = {alias.asname for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen | {"__version__"} == set(sidequest.__all__)
