"""`sidequest models list`: what can be used, how large it is, who says so, what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidequest.models.local_answers import LocalModel
from sidequest.models.local_servers import LocalServer
from sidequest.surfaces.cli.models import server_lines
from tests.surfaces.conftest import Cli, write_settings


def listed(cli: Cli) -> dict[str, object]:
    return json.loads(cli("models", "list", "--no-discover", "--json").out)


def test_without_keys_the_embedded_engine_is_the_default_and_says_what_it_is_not(cli: Cli):
    result = cli("models", "list", "--no-discover")
    assert (result.code, result.err) == (0, "")
    assert "* offline/extractive" in result.out
    assert "* the default: offline/extractive" in result.out
    assert "offline/extractive is not a language model" in result.out


def test_a_provider_without_a_key_says_which_variable_is_missing(cli: Cli):
    out = cli("models", "list", "--no-discover").out
    line = next(line for line in out.splitlines() if "anthropic/" in line)
    assert line.endswith("ANTHROPIC_API_KEY is not set")


def test_a_key_makes_its_models_ready_and_the_first_one_the_default(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    data = listed(cli)
    assert str(data["default"]).startswith("anthropic/")
    ready = [model["key"] for model in data["models"] if model["ready"]]
    assert data["default"] in ready


def test_a_model_of_the_settings_states_its_window_itself(cli: Cli, home: Path):
    write_settings(
        home,
        '[models."lab/tiny"]\nbase_url = "http://127.0.0.1:9/v1"\ncontext_window = 4096\nmax_tokens = 512\n',
    )
    model = next(model for model in listed(cli)["models"] if model["key"] == "lab/tiny")
    assert (model["window"], model["windowFrom"], model["maxTokens"]) == (4096, "user", 512)
    out = cli("models", "list", "--no-discover").out
    assert "* lab/tiny" in out
    assert "window: your settings; writes 512" in out


def test_keys_are_never_printed(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret-word")
    write_settings(
        home, '[models."lab/tiny"]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "another-secret"\n'
    )
    for options in ((), ("--json",)):
        out = cli("models", "list", "--no-discover", *options).out
        assert "secret" not in out


def test_a_default_that_cannot_be_resolved_is_said(cli: Cli, home: Path):
    write_settings(home, 'default_model = "nope"\n')
    result = cli("models", "list", "--no-discover")
    assert result.code == 0
    said = "no default: The default_model of the settings cannot be used: "
    assert f"{said}No model is configured under the name 'nope'." in result.out


def test_settings_that_cannot_be_read_are_code_2(cli: Cli, home: Path):
    write_settings(home, "default_modell = 1\n")
    result = cli("models", "list", "--no-discover")
    assert (result.code, result.out) == (2, "")
    assert "Did you mean default_model?" in result.err


def test_a_server_on_this_machine_is_shown_with_how_to_use_it():
    server = LocalServer("ollama", "http://127.0.0.1:11434/v1", (LocalModel("qwen3:8b", 8192),))
    silent = LocalServer("vllm", "http://127.0.0.1:8000/v1", note="The answer is not JSON.")
    assert list(server_lines([server, silent])) == [
        "ollama  http://127.0.0.1:11434/v1  1 model",
        '  use one: sidequest run --model ollama/qwen3:8b "..."',
        "vllm  http://127.0.0.1:8000/v1  The answer is not JSON.",
    ]
    assert list(server_lines([])) == ["none found (looked for Ollama, LM Studio, llama.cpp and vLLM)"]
