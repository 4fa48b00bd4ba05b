"""The settings file behind page and API: comments stay, keys stay inside, nothing unreadable is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.app.application import Application
from sidequest.surfaces.app.settings import SettingsFile, SettingsRefused
from sidequest.surfaces.app.settings_shapes import DenyLists, ModelChange, SettingsChange
from tests.app.conftest import Opened
from tests.surfaces.conftest import write_settings

SECRET = "fake-secret-value"
BY_HAND = f"""\
# Mine.
default_context = "fork"   # I like it
max_turns = 100 # enough

[deny]
paths = [
    "*.pem", # keys
    "**/.env",
]

# The box under the desk.
[models."work/qwen"]
base_url = "http://127.0.0.1:8000/v1"
api_key = "{SECRET}"
context_window = 32768
"""


@pytest.fixture
def settings(tree: Path) -> SettingsFile:
    nothing: Any = None
    return SettingsFile(Application(tree, dict(os.environ), nothing, nothing))


def with_variables(settings: SettingsFile, **variables: str) -> SettingsFile:
    """The same file in an environment with more variables."""
    old = settings.application
    return SettingsFile(Application(old.root, {**old.env, **variables}, old.store, old.live))


def refused(settings: SettingsFile, **change: Any) -> dict[str, str]:
    with pytest.raises(SettingsRefused) as error:
        settings.change(SettingsChange(**change))
    return {problem.field: problem.message for problem in error.value.problems}


def test_without_a_file_the_defaults_are_in_force(settings: SettingsFile):
    seen = settings.view()
    assert (seen.exists, seen.place, seen.problem) == (False, "~/.config/sidequest/config.toml", "")
    assert seen.values is not None
    assert (seen.values.permission_mode, seen.values.max_running, seen.values.max_turns) == ("ask", 10, None)
    assert seen.default_now == "offline/extractive"


def test_the_first_save_makes_a_file_for_its_owner_alone(settings: SettingsFile):
    settings.change(SettingsChange(max_turns="50", sandbox="auto"))
    assert settings.path.read_text() == 'sandbox = "auto"\nmax_turns = 50\n'
    assert settings.path.stat().st_mode & 0o777 == 0o600


def test_a_change_keeps_comments_and_all_other_lines(settings: SettingsFile, home: Path):
    file = write_settings(home, BY_HAND)
    settings.change(SettingsChange(max_turns=20, default_context=None, permission_mode="auto"))
    expected = BY_HAND.replace("100 #", "20 #").replace('default_context = "fork"   # I like it\n', "")
    assert file.read_text().replace('permission_mode = "auto"\n', "").split() == expected.split()
    seen = settings.view().values
    assert seen is not None
    assert (seen.permission_mode, seen.default_context) == ("auto", "independent")


def test_deny_rules_that_stay_keep_their_comments(settings: SettingsFile, home: Path):
    file = write_settings(home, BY_HAND)
    settings.change(SettingsChange(deny=DenyLists(paths=("*.pem", "/etc/*"), commands=("git push",))))
    text = file.read_text()
    assert '"*.pem", # keys' in text
    assert '"**/.env"' not in text
    seen = settings.view().values
    assert seen is not None
    assert seen.deny == DenyLists(paths=("*.pem", "/etc/*"), commands=("git push",))


def test_a_change_of_some_deny_rules_leaves_the_others(settings: SettingsFile, home: Path):
    file = write_settings(home, BY_HAND)
    settings.change(SettingsChange.model_validate({"deny": {"commands": ["git push"]}}))
    assert '"*.pem", # keys' in file.read_text()
    settings.change(SettingsChange.model_validate({"deny": {"paths": []}}))
    seen = settings.view().values
    assert seen is not None
    assert seen.deny == DenyLists(commands=("git push",))
    settings.change(SettingsChange.model_validate({"deny": None}))
    assert (settings.view().values or seen).deny == DenyLists()


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"default_model": "nobody/knows"}, "defaultModel", "No model is configured"),
        ({"max_turns": 0}, "maxTurns", "greater than or equal to 1"),
        ({"max_turns": "many"}, "maxTurns", "digits alone, for example 4000"),
        ({"max_turns": "4.000"}, "maxTurns", "digits alone, for example 4000"),
        ({"max_total": "1,000"}, "maxTotal", "digits alone, for example 4000"),
        ({"max_cost_usd": "0,50"}, "maxCostUsd", "a point before decimals, for example 0.50"),
        ({"max_seconds": "1_000"}, "maxSeconds", "a point before decimals, for example 0.50"),
        ({"max_running": 11}, "maxRunning", "less than or equal to 10"),
        ({"max_cost_usd": -1}, "maxCostUsd", "greater than 0"),
        ({"max_seconds": float("inf")}, "maxSeconds", "a point before decimals"),
        ({"permission_mode": "all"}, "permissionMode", "'ask'"),
        ({"sandbox": "maybe"}, "sandbox", "'off'"),
        ({"deny": DenyLists(commands=(" ",))}, "deny", "empty"),
    ],
)
def test_each_value_that_cannot_be_is_refused_by_name(
    settings: SettingsFile, home: Path, change: dict[str, Any], field: str, said: str
):
    file = write_settings(home, BY_HAND)
    problems = refused(settings, **change)
    assert list(problems) == [field]
    assert said in problems[field]
    assert file.read_text() == BY_HAND


def test_a_key_is_set_and_removed_and_never_shown(settings: SettingsFile, home: Path):
    file = write_settings(home, 'max_turns = 3\n[models."work/qwen"]\nbase_url = "http://x/v1"\n')
    file.chmod(0o644)
    seen = settings.change_model("work/qwen", ModelChange(api_key=SECRET))  # type: ignore[arg-type]
    [row] = [row for row in seen.models if row.key == "work/qwen"]
    assert (row.key_state, row.key_source, row.in_file) == ("set", "settings", True)
    assert SECRET in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert SECRET not in seen.model_dump_json()
    again = settings.change_model("work/qwen", ModelChange(api_key=None))
    assert SECRET not in file.read_text()
    assert [row.key_state for row in again.models if row.key == "work/qwen"] == ["unneeded"]


def test_what_is_left_out_of_a_model_stays(settings: SettingsFile, home: Path):
    file = write_settings(home, BY_HAND)
    settings.change_model("work/qwen", ModelChange(context_window="65536", max_tokens=4096))
    assert file.read_text() == BY_HAND.replace("32768\n", "65536\nmax_tokens = 4096\n")


def test_windows_and_caps_come_with_who_said_so(settings: SettingsFile, home: Path):
    write_settings(home, BY_HAND)
    rows = {row.key: row for row in with_variables(settings, ANTHROPIC_API_KEY=SECRET).view().models}
    own, known = rows["work/qwen"], rows["anthropic/claude-sonnet-5-5"]
    assert (own.window, own.window_source, own.max_tokens_source) == (32768, "user", "unknown")
    assert (known.key_state, known.key_source) == ("set", "ANTHROPIC_API_KEY")
    assert (rows["openai/gpt-6.1-sol"].key_state, rows["openai/gpt-6.1-sol"].key_source) == (
        "missing",
        "OPENAI_API_KEY",
    )
    assert rows["offline/extractive"].key_state == "unneeded"


def test_a_model_is_added_and_taken_out_again(settings: SettingsFile, home: Path):
    file = write_settings(home, "max_turns = 3 # few\n")
    settings.change_model(
        "home/big", ModelChange(base_url="http://10.0.0.2/v1", available_for_subagents=True)
    )
    assert file.read_text() == (
        'max_turns = 3 # few\n\n[models."home/big"]\nbase_url = "http://10.0.0.2/v1"\n'
        "available_for_subagents = true\n"
    )
    settings.remove_model("home/big")
    assert file.read_text().strip() == "max_turns = 3 # few"
    with pytest.raises(SidequestError, match="no table"):
        settings.remove_model("home/big")


def test_the_table_of_the_default_model_stays_until_another_one_is_chosen(settings: SettingsFile, home: Path):
    file = write_settings(home, f'default_model = "work/qwen"\n{BY_HAND}')
    before = file.read_text()
    with pytest.raises(SidequestError, match="no session could begin") as error:
        settings.remove_model("work/qwen")
    assert error.value.code is ErrorCode.SETTINGS_INVALID
    assert file.read_text() == before
    settings.change(SettingsChange(default_model="offline/extractive"))
    assert all(row.key != "work/qwen" for row in settings.remove_model("work/qwen").models)


def test_a_password_in_an_address_is_refused_and_one_written_by_hand_is_not_shown(
    settings: SettingsFile, home: Path
):
    write_settings(home, BY_HAND.replace("127.0.0.1:8000", "user:pass@127.0.0.1:8000"))
    seen = settings.view()
    assert [row.base_url for row in seen.models if row.key == "work/qwen"] == ["http://127.0.0.1:8000/v1"]
    with pytest.raises(SettingsRefused, match="name and password out of the address"):
        settings.change_model("a/b", ModelChange(base_url="http://u:p@host/v1"))
    settings.change_model("a/b", ModelChange(base_url="http://host/v1/@team"))


@pytest.mark.parametrize(
    ("key", "change", "field"),
    [
        ("nameless", {}, "key"),
        ("a/b", {"base_url": "ftp://x"}, "baseUrl"),
        ("a/b", {"context_window": 0}, "contextWindow"),
        ("a/b", {"api_key_env": "sk-123"}, "apiKeyEnv"),
        ("a/b", {"input_price": "dear"}, "inputPrice"),
        ("a/b", {"output_price": "0,50"}, "outputPrice"),
        ("a/b", {"context_window": "65,536"}, "contextWindow"),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_field(
    settings: SettingsFile, key: str, change: dict[str, Any], field: str
):
    with pytest.raises(SidequestError) as error:
        settings.change_model(key, ModelChange(**change))
    assert error.value.code is ErrorCode.SETTINGS_INVALID
    assert list(error.value.failure.details) == [field]
    assert not settings.path.exists()


def test_a_variable_that_beats_the_file_is_named(settings: SettingsFile, home: Path):
    write_settings(home, BY_HAND)
    seen = with_variables(settings, SIDEQUEST_MAX_TURNS="7", SIDEQUEST_SANDBOX="").view()
    assert seen.overridden == {"maxTurns": "SIDEQUEST_MAX_TURNS"}
    assert seen.values is not None
    assert seen.values.max_turns == 7


def test_a_default_model_that_is_gone_is_a_problem_and_hides_nothing(settings: SettingsFile, home: Path):
    write_settings(home, 'default_model = "gone/model"\nmax_turns = 3\n')
    seen = settings.view()
    assert "gone/model" in seen.problem
    assert seen.values is not None
    assert (seen.values.max_turns, seen.default_now, len(seen.models) > 1) == (3, None, True)


def test_a_file_that_changed_meanwhile_is_not_written_over(settings: SettingsFile, home: Path):
    file = write_settings(home, BY_HAND)
    mark = settings.view().mark
    file.write_text("max_turns = 1\n")
    with pytest.raises(SidequestError, match="changed since") as error:
        settings.change(SettingsChange(max_turns=5, mark=mark))
    assert error.value.code is ErrorCode.STORE_CONFLICT
    assert file.read_text() == "max_turns = 1\n"


@pytest.mark.parametrize("text", ["max_turns = \n", "max_turn = 3\n"])
def test_a_file_that_cannot_be_used_says_why_and_is_left_alone(settings: SettingsFile, home: Path, text: str):
    file = write_settings(home, text)
    seen = settings.view()
    assert (seen.values, "config.toml" in seen.problem) == (None, True)
    with pytest.raises(SidequestError) as error:
        settings.change(SettingsChange(sandbox="auto"))
    assert "/tmp" not in error.value.cause.replace(str(file), "")
    assert file.read_text() == text


@pytest.mark.anyio
async def test_a_key_that_was_set_while_the_app_runs_is_masked_in_what_is_stored(opened: Opened):
    async with opened() as application:
        file = SettingsFile(application)
        key = ModelChange.model_validate({"baseUrl": "http://127.0.0.1:9/v1", "apiKey": SECRET})
        file.change_model("work/qwen", key)
        live = await application.live.create(model="offline/extractive", title=f"Why {SECRET}?")
        row = await application.store.sessions.get(live.id)
        assert SECRET not in row.title
