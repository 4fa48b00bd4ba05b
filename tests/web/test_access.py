"""Which addresses may be served, under which names, and what the link looks like."""

from __future__ import annotations

import pytest

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.web.access import Access

TOKEN = "a-token-of-scripts"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_this_machine_needs_no_token(host: str):
    assert Access(host).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "box.example"])
def test_another_address_needs_a_token(host: str):
    with pytest.raises(SidequestError, match="no token guards it") as refused:
        Access(host)
    assert refused.value.code is ErrorCode.USAGE
    assert Access(host, TOKEN).token == TOKEN


@pytest.mark.parametrize("token", ["", "short", "x" * 15])
def test_a_token_that_can_be_guessed_is_refused(token: str):
    with pytest.raises(SidequestError, match="16 is the least"):
        Access(token=token)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("192.168.1.7", "http://192.168.1.7:80"),
    ],
)
def test_the_link_leads_where_a_browser_of_this_machine_finds_it(host: str, address: str):
    assert Access(host, TOKEN, 80).new_links()[0].startswith(f"{address}/enter?ticket=")


@pytest.mark.parametrize("header", ["192.168.1.7:80", "[fe80::1]:80", "127.0.0.1:80"])
def test_served_to_other_machines_every_literal_address_is_a_name_of_ours(header: str):
    assert Access("0.0.0.0", TOKEN).names_us(header)


def test_served_to_other_machines_a_foreign_name_still_is_none():
    assert not Access("0.0.0.0", TOKEN).names_us("evil.example")


def test_a_name_that_was_asked_for_is_ours():
    assert Access("box.example", TOKEN).names_us("box.example:80")


def test_a_name_of_a_proxy_is_ours_with_https_and_is_in_the_links():
    access = Access(port=80, names=frozenset({"Side.example"}))
    assert access.names_us("side.example")
    assert access.is_behind_proxy("https://side.example")
    assert not access.is_behind_proxy("http://side.example")
    assert not access.is_behind_proxy("https://evil.example")
    assert [link.partition("/enter")[0] for link in access.new_links()] == [
        "http://127.0.0.1:80",
        "https://side.example",
    ]


@pytest.mark.parametrize("name", ["", "https://side.example", "side.example:443", "a b/c"])
def test_what_is_no_name_is_refused(name: str):
    with pytest.raises(SidequestError, match="is no host name"):
        Access(names=frozenset({name}))


def test_a_link_can_be_given_a_time():
    now = [0.0]
    access = Access(port=80, clock=lambda: now[0])
    for passed, admitted in ((600.0, True), (601.0, False)):
        now[0] = 0.0
        ticket = access.new_links(600)[0].partition("ticket=")[2]
        now[0] = passed
        assert (access.admit(ticket) is not None) is admitted


def test_two_servers_of_one_machine_have_cookies_of_their_own():
    assert Access(port=1).cookie_name != Access(port=2).cookie_name


def test_what_lets_somebody_in_is_not_in_its_repr():
    access = Access(token=TOKEN)
    link = access.new_links()[0]
    cookie = access.admit(link.partition("ticket=")[2])
    assert cookie is not None
    assert not any(secret in repr(access) for secret in (TOKEN, cookie))
