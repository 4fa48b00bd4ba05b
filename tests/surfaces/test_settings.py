"""The settings file and its variables: what is read, who wins, and what an error says."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.core.permissions import DenyRules, Mode
from sidequest.surfaces.settings import Settings, load_settings, settings_path, unknown_variables

SECRET = "fake-secret-value"


def load(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, env or {})


def complaint(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(SidequestError) as caught:
        load(tmp_path, text, env)
    assert caught.value.code is ErrorCode.SETTINGS_INVALID
    return str(caught.value)


def test_the_file_is_looked_for_in_three_places(tmp_path: Path):
    assert settings_path({"SIDEQUEST_CONFIG": "/a/b.toml", "XDG_CONFIG_HOME": "/x"}) == Path("/a/b.toml")
    assert settings_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/sidequest/config.toml")
    assert settings_path({"XDG_CONFIG_HOME": "x"}) == Path.home() / ".config/sidequest/config.toml"
    assert settings_path({}) == Path.home() / ".config/sidequest/config.toml"


def test_a_missing_file_means_the_defaults(tmp_path: Path):
    settings = load_settings(env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert settings == Settings.model_construct()
    assert (settings.default_context, settings.max_cost_usd) == ("independent", None)
    assert (settings.max_running, settings.models, settings.store) == (10, {}, None)


def test_everything_a_file_may_say(tmp_path: Path):
    text = f"""
        default_model = "home/qwen3:8b"
        default_context = "fork"
        max_cost_usd = 2.5
        max_running = 3
        agents_dirs = ["~/mine", "near"]
        [[error_patterns]]
        name = "mine"
        kind = "input"
        regex = "too much"
        [models."home/qwen3:8b"]
        base_url = "http://127.0.0.1:8080/v1"
        api_key = "{SECRET}"
        context_window = 32000
        aliases = ["qwen"]
    """
    settings = load(tmp_path, text)
    assert (settings.default_context, settings.max_cost_usd, settings.max_running) == (
        "fork",
        2.5,
        3,
    )
    assert settings.agents_dirs == [Path.home() / "mine", tmp_path / "near"]
    assert settings.error_patterns == [{"name": "mine", "kind": "input", "regex": "too much"}]
    assert settings.models["home/qwen3:8b"].context_window == 32_000
    assert SECRET not in repr(settings) + str(settings.model_dump())


def test_variables_beat_the_file_and_foreign_ones_are_no_concern(tmp_path: Path):
    env = {"SIDEQUEST_DEFAULT_MODEL": "sonnet", "SIDEQUEST_AGENTS_DIRS": "/a:/b", "SIDEQUEST_HOME": "/x"}
    settings = load(tmp_path, 'default_model = "opus"\nmax_running = 2', env)
    assert (settings.default_model, settings.max_running) == ("sonnet", 2)
    assert settings.agents_dirs == [Path("/a"), Path("/b")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('default_modle = "x"', "default_modle is no setting. Did you mean default_model?"),
        ("zzz = 1", "zzz is no setting. Accepted: agents_dirs, default_context"),
        (
            '[models."a/b"]\ncontext-windw = 1',
            'models."a/b".context-windw is no setting. Did you mean context_window?',
        ),
        ('default_context = "all"', "default_context: should be 'independent' or 'fork'."),
        ("max_cost_usd = 0", "max_cost_usd: should be greater than 0."),
        ("max_running = 11", "max_running: should be less than or equal to 10."),
        ('[models."a/b"]\nmax_tokens = 0', 'models."a/b".max_tokens: should be greater than 0.'),
        (
            '[models."a/b"]\nbase_url = "localhost:1"',
            "should be an address that starts with http:// or https://",
        ),
        ("[models]\nx = 3", "models.x: should be a table."),
        ("[models.qwen]", "'qwen' is no provider/name; write for example [models.\"openai/qwen\"]"),
        ("[models.a/b]", "is not TOML: Expected ']'"),
    ],
)
def test_an_error_names_the_file_the_key_and_what_is_accepted(tmp_path: Path, text: str, says: str):
    told = complaint(tmp_path, text)
    assert says in told
    assert str(tmp_path / "config.toml") in told


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("near/s.db", "{folder}/near/s.db"),
        ("~/s.db", "{home}/s.db"),
        ("/a/s.db", "/a/s.db"),
        ("postgresql://me:pass-word@host/db", "postgresql://me:pass-word@host/db"),
    ],
)
def test_the_store_is_an_address_or_a_path_that_starts_at_the_file(tmp_path: Path, written: str, read: str):
    expected = read.format(folder=tmp_path, home=Path.home())
    assert load(tmp_path, f'store = "{written}"').store == expected
    settings = load(tmp_path, 'store = "other.db"', {"SIDEQUEST_STORE": written})
    assert settings.store == expected
    assert "pass-word" not in repr(settings)


def test_an_error_in_a_variable_names_the_variable(tmp_path: Path):
    assert "The variable SIDEQUEST_MAX_RUNNING: should be" in complaint(
        tmp_path, "", {"SIDEQUEST_MAX_RUNNING": "0"}
    )
    assert '"models"' in complaint(tmp_path, "", {"SIDEQUEST_MODELS": "{"})


def test_a_file_that_cannot_be_read_is_an_error_too(tmp_path: Path):
    (tmp_path / "config.toml").write_bytes(b'default_model = "\xff"')
    with pytest.raises(SidequestError, match="cannot be read"):
        load_settings(tmp_path / "config.toml", {})


@pytest.mark.parametrize(
    "line",
    [
        f'api_key_env = "sk-{SECRET}"',
        f'api_key = "{SECRET}"\nmax_tokens = -1',
        f'api_key = ["{SECRET}"]',
        f'headers = {{ Authorization = ["{SECRET}"] }}',
        f'api_key = "{SECRET}"\napi_kee = "{SECRET}"',
    ],
)
def test_a_secret_is_never_part_of_an_error(tmp_path: Path, line: str):
    assert SECRET not in complaint(tmp_path, f'[models."a/b"]\n{line}')


def test_permissions_have_a_mode_and_deny_rules(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text('permission_mode = "accept-edits"\n[deny]\ncommands = ["git push"]\npaths = ["*.pem"]\n')
    settings = load_settings(file, {})
    assert settings.permission_mode is Mode.ACCEPT_EDITS
    assert (settings.sandbox, settings.max_total) == ("off", 100)
    assert settings.deny.rules() == DenyRules(paths=("*.pem",), commands=("git push",))
    assert load_settings(file, {"SIDEQUEST_PERMISSION_MODE": "auto"}).permission_mode is Mode.AUTO


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[deny]\ncommand = ["x"]', "deny.command is no setting. Did you mean commands?"),
        ('[deny]\npaths = [" "]', "A deny rule for paths is empty or too long"),
        (
            "[deny]\npaths = ['../x']",
            "config.toml: deny: The deny rule '../x' for paths leads with .. to a folder",
        ),
        ("deny = 3", "deny: should be a table"),
    ],
)
def test_deny_rules_that_are_wrong_are_named(tmp_path: Path, text: str, said: str):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SidequestError, match=re.escape(said)):
        load_settings(file, {})


def test_a_file_that_the_variable_names_must_be_there(tmp_path: Path):
    with pytest.raises(SidequestError, match=r"SIDEQUEST_CONFIG names .*, which is not there"):
        load_settings(env={"SIDEQUEST_CONFIG": str(tmp_path / "no.toml")})


def test_what_is_no_regular_file_is_refused_and_not_passed_over(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for there in (tmp_path, fifo):
        with pytest.raises(SidequestError, match="is no regular file"):
            load_settings(env={"SIDEQUEST_CONFIG": str(there)})
    usual = tmp_path / "sidequest/config.toml"
    usual.mkdir(parents=True)
    with pytest.raises(SidequestError, match="is no regular file"):
        load_settings(env={"XDG_CONFIG_HOME": str(tmp_path)})


def test_an_error_pattern_with_a_key_that_is_not_known_names_the_file(tmp_path: Path):
    text = '[[error_patterns]]\nname = "mine"\nkind = "input"\nregex = "x"\nmeans = "y"\n'
    with pytest.raises(SidequestError) as caught:
        load(tmp_path, text)
    assert str(tmp_path) in caught.value.cause
    assert "mine has the unknown key 'means'" in caught.value.cause


def test_a_text_where_a_list_belongs_is_told_in_plain_words(tmp_path: Path):
    with pytest.raises(SidequestError) as caught:
        load(tmp_path, '[deny]\ntools = "x"\n')
    assert 'deny.tools: should be a list, such as ["one", "two"].' in caught.value.cause


def test_a_variable_with_our_prefix_that_nobody_reads_is_named_with_a_near_one():
    env = {"SIDEQUEST_MAX_TURN": "5", "SIDEQUEST_STORE": "x", "SIDEQUEST_DEBUG": "1", "HOME": "/"}
    assert unknown_variables(env) == [
        "The variable SIDEQUEST_MAX_TURN is no setting and is not used. Did you mean SIDEQUEST_MAX_TURNS?"
    ]
