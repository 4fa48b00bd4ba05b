"""Specification 1.4: token counts without a tokenizer, never below the plain heuristic (B5, B6; needs 8)."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    SystemPromptPart,
    TextContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from sidequest.core.tokens import (
    FILE_FRAME_TOKENS,
    IMAGE_TOKENS,
    Overhead,
    TokenMeter,
    compact_json,
    estimate,
    estimate_message,
    estimate_text,
    file_text,
    reported_tokens,
    without_usage,
)
from tests.core.builders import call, exchange, image, prose, repeatable, result, results, says, user

NOISE = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(19))[:600]
BASE64 = base64.b64encode(NOISE).decode()
MINIFIED_SCRIPT = (
    '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?module.exports=t():"function"=='
    "typeof define&&define.amd?define(t):(e=e||self).Q=t()}(this,function(){var e=Object.assign||function"
    "(e){for(var t=1;t<arguments.length;t++){var n=arguments[t];for(var r in n)Object.prototype"
    ".hasOwnProperty.call(n,r)&&(e[r]=n[r])}return e};return t.prototype.get=function(e){return this.m[e]},"
    "t.f=function(n,r,o){return n<<r^o>>>3&255},t});"
)
MINIFIED_STYLES = (
    '.a{margin:0;padding:0 4px}.b>.c:hover,.d::before{content:"";color:#1a2b3c;background:url(/i/x.png)0 '
    "0/12px no-repeat}@media(max-width:640px){.a{display:none}.e{grid-template-columns:1fr 2fr;gap:.5rem}}"
)

# Counted with the public o200k_base vocabulary: what a current tokenizer really needs for these texts.
SCRIPTS = {
    "Latin": (
        "All human beings are born free and equal in dignity and rights. They are endowed with reason and "
        "conscience and should act towards one another in a spirit of brotherhood.",
        33,
    ),
    "Cyrillic": ("Все люди рождаются свободными и равными в своем достоинстве и правах.", 17),
    "Greek": ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.", 31),
    "Arabic": ("يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.", 18),
    "Hebrew": ("כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.", 20),
    "Devanagari": ("सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।", 25),
    "Han": ("人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。", 37),
    "Kana": ("すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。", 35),
    "Hangul": ("모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.", 24),
    "Thai": ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ", 32),
}
RUNS = {
    "base64 in one line": (BASE64, 548),
    "base64 in lines of 76": ("\n".join(BASE64[i : i + 76] for i in range(0, len(BASE64), 76)), 562),
    "hashes": ("\n".join(NOISE.hex()[i : i + 64] for i in range(0, 640, 64)), 366),
    "minified script": (MINIFIED_SCRIPT, 132),
    "minified styles": (MINIFIED_STYLES, 78),
    "emoji": ("🎉🚀🔥🧪📦", 10),
}


def test_five_letters_are_two_tokens():
    assert [estimate_text(text) for text in ("", "four", "small")] == [0, 1, 2]


@pytest.mark.parametrize(("text", "real"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_is_not_counted_below_what_it_needs(text, real):
    assert estimate_text(text) >= real


@pytest.mark.parametrize(("text", "real"), RUNS.values(), ids=RUNS)
def test_encoded_and_minified_text_is_not_counted_below_what_it_needs(text, real):
    assert real <= estimate_text(text) <= 2 * real


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != "Latin"])
def test_a_script_that_is_not_latin_weighs_more_than_the_heuristic(script):
    text = SCRIPTS[script][0]
    assert estimate_text(text) > math.ceil(len(text) / 4)


@pytest.mark.parametrize("text", ["ᄒᆞᆫ", "ᠬᠦᠮᠦᠨ", "የሰውልጅ", "ꆈꌠꁱꂷ", "ⵜⴰⵎⴰⵣⵉⵖⵜ"])
def test_a_script_that_tokenizers_spell_in_bytes_weighs_two_tokens_a_character(text):
    assert estimate_text(text) == 2 * len(text)


def test_plain_prose_is_the_heuristic_exactly():
    assert estimate_text(prose(4_000)) == 1_000


def test_a_short_word_without_spaces_is_not_an_unbroken_run():
    assert estimate_text("x" * 56) == 14
    assert estimate_text("x" * 60) > 15


@repeatable(150)
@given(st.text(max_size=300))
def test_no_text_is_counted_below_a_quarter_of_its_characters(text):
    assert estimate_text(text) >= math.ceil(len(text) / 4)


@repeatable(100)
@given(st.text(max_size=200), st.text(max_size=200))
def test_longer_text_is_never_cheaper(text, more):
    assert estimate_text(text + more) >= estimate_text(text)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (user("small"), 2),
        (ModelRequest(parts=[UserPromptPart(["four", TextContent("small")])]), 3),
        (ModelRequest(parts=[SystemPromptPart("12345678")]), 2),
        (says("12345678"), 2),
        (says("1234", thinking="12345678"), 3),
        (says("", call(tool="Read", path="a")), 4),
        (results(result("12345678")), 2),
        (ModelRequest(parts=[]), 0),
    ],
    ids=["user", "blocks", "system", "text", "thinking", "name and compact arguments", "result", "nothing"],
)
def test_a_message_is_the_sum_of_its_texts_rounded_up_once(message, tokens):
    assert estimate_message(message) == tokens


@pytest.mark.parametrize("picture", [image(), image(200_000), ImageUrl("https://example.org/a.png")])
def test_an_image_has_a_flat_price(picture):
    assert estimate_message(ModelRequest(parts=[UserPromptPart([picture])])) == IMAGE_TOKENS == 1_200
    assert estimate_message(results(result([picture]))) == 1_200


@pytest.mark.parametrize(("size", "tokens"), [(64, 1_200), (640_000, 10_000)])
def test_a_document_is_priced_by_its_size_and_never_below_an_image(size, tokens):
    document = BinaryContent(data=bytes(size), media_type="application/pdf")
    assert estimate_message(ModelRequest(parts=[UserPromptPart([document])])) == tokens


TEXT_MEDIA = ["text/plain", "text/markdown; charset=utf-8", "text/csv", "application/json"]
TEXT_MEDIA += ["application/x-yaml", "application/xml", "image/svg+xml", "application/javascript"]


@pytest.mark.parametrize("media_type", TEXT_MEDIA)
def test_a_file_that_is_sent_as_text_is_counted_as_its_text(media_type):
    file = BinaryContent(data=("数" * 3_000).encode(), media_type=media_type)
    for message in (ModelRequest(parts=[UserPromptPart([file])]), results(result(["x", file]))):
        assert estimate_message(message) == pytest.approx(3_000 + FILE_FRAME_TOKENS, abs=1)


def test_a_text_file_that_is_not_unicode_is_counted_too():
    assert file_text(BinaryContent(data=b"caf\xe9", media_type="text/plain")) == "caf\ufffd"
    assert file_text(image()) is None


def test_ids_usage_and_recorded_instructions_are_not_counted():
    plain = says("text", call("c1"))
    told = says("text", call("c" * 500), reported=9_999)
    assert estimate_message(told) == estimate_message(plain)
    assert estimate_message(ModelRequest(parts=[], instructions=prose(400))) == 0


@pytest.mark.parametrize(
    "content",
    [["a"] * 1_000, [1, 2, 3] * 300, {"rows": [{"n": n} for n in range(200)]}, [{"path": "a"}, "x"], None, 7],
    ids=["strings", "numbers", "mapping", "mixed", "none", "scalar"],
)
def test_a_structured_result_is_counted_as_it_is_sent(content):
    part = result(content)
    assert estimate_message(results(part)) >= math.ceil(len(part.model_response_str()) / 4)


def test_arguments_as_text_and_as_a_mapping_weigh_the_same():
    arguments = {"path": "src/a.py", "limit": 20}
    text = replace(call(), args=compact_json(arguments))
    assert estimate_message(says("", text)) == estimate_message(says("", replace(call(), args=arguments)))


def test_B5_zero_usage_is_no_anchor():
    history = [user(prose(400)), says(prose(40)), user(prose(80))]
    assert estimate(history) == 100 + 10 + 20


def test_B6_a_reported_size_is_an_anchor_and_the_rest_is_added():
    history = [user(prose(5_000)), says("four", reported=5_000), user(prose(80))]
    assert estimate(history) == 5_020


@pytest.mark.parametrize(("reported", "size"), [(4_000, 4_000), (4_001, 1_000)])
def test_a_report_of_more_than_four_times_our_count_is_no_anchor(reported, size):
    assert estimate([user(prose(3_884)), says("four" * 2, reported=reported)], overhead=27) == size


def test_what_came_after_a_report_does_not_make_it_credible():
    assert estimate([user("small"), says("four", reported=5_000), user(prose(8_000))]) == 2_003


def test_a_report_before_a_broken_one_is_the_anchor():
    history = [user(prose(4_000)), says("four", reported=2_000), user("four"), says("four", reported=90_000)]
    assert estimate(history) == 2_002


def test_cache_reads_and_the_answer_are_part_of_a_reported_size():
    usage = RequestUsage(input_tokens=5_000, cache_read_tokens=4_500, output_tokens=300)
    assert reported_tokens(replace(says("four"), usage=usage)) == 5_300


def test_the_heuristic_with_overhead_wins_when_a_report_is_smaller():
    history = [user(prose(4_000)), says("four", reported=20)]
    assert estimate(history, overhead=300) == 1_000 + 1 + 300


def test_a_report_includes_the_overhead_which_is_not_added_again():
    assert estimate([user("small"), says("four", reported=5_000)], overhead=3_000) == 5_000
    assert estimate([user("small"), says("four", reported=12_012)], overhead=3_000) == 12_012


@pytest.mark.parametrize("facts", [{"finish_reason": "error"}, {"state": "interrupted"}])
def test_a_failed_or_interrupted_response_is_no_anchor(facts):
    assert estimate([user("small"), says("four", reported=5_000, **facts)]) == 3


def test_the_newest_usable_report_is_the_anchor():
    history = [user(prose(5_000)), says("four", reported=5_000), user("four"), says("four")]
    assert estimate(history) == 5_002


def test_a_stale_anchor_is_taken_off_and_everything_else_stays():
    told = says("four", call(), reported=5_000)
    bare = without_usage(told)
    assert reported_tokens(bare) == 0
    assert bare == replace(told, usage=RequestUsage())
    assert reported_tokens(told) == 5_000
    assert without_usage(bare) is bare


def test_overhead_is_instructions_and_tools_together():
    assert Overhead(300, 40).total == 340
    assert estimate([], overhead=Overhead(300, 40).total) == 340


def test_a_factor_multiplies_our_count_and_not_what_was_reported():
    history = [user(prose(400)), says("four", reported=1_500), user(prose(80))]
    assert TokenMeter().measure(history, 300, 1.5) == 1_500 + 30
    assert TokenMeter().measure(history[:1], 300, 1.5) == 600
    assert TokenMeter().measure(history[:1], 301, 1.5) == 602


POOL = [
    user("small"),
    says("four", reported=700),
    *exchange(prose(900)),
    says(SCRIPTS["Han"][0]),
    user(prose(80)),
    says("", call("c2"), reported=90, state="interrupted"),
]


@repeatable(100)
@given(st.lists(st.lists(st.sampled_from(POOL), max_size=8), min_size=1, max_size=6), st.integers(0, 500))
def test_a_meter_says_what_a_fresh_estimate_says_after_any_edit(edits, overhead):
    meter = TokenMeter()
    for history in edits:
        assert meter.measure(history, overhead) == estimate(history, overhead)
        assert meter.heuristic(history, overhead) == sum(map(estimate_message, history)) + overhead


@repeatable(100)
@given(st.data())
def test_a_meter_follows_a_list_that_is_edited_in_place(data):
    meter, history = TokenMeter(), list(POOL)
    for _ in range(5):
        start = data.draw(st.integers(0, len(history)))
        stop = data.draw(st.integers(start, len(history)))
        history[start:stop] = data.draw(st.lists(st.sampled_from(POOL), max_size=3))
        assert meter.measure(history) == estimate(history)


class _Counted(list):
    """A prompt that counts how often it is read."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        return super().__iter__()


def test_a_meter_weighs_each_message_once():
    content = _Counted(["small"])
    history = [ModelRequest(parts=[UserPromptPart(content)])]
    meter, content.reads = TokenMeter(), 0
    for _ in range(3):
        meter.measure(history)
        history.append(user("more"))
    assert content.reads == 1
