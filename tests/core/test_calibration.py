"""What reported usage teaches: the factor of a model, and whether a prompt was cut (overflow-messages 3)."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core.calibration import (
    MAX_FACTOR,
    MIN_LEARNED_WINDOW,
    MIN_RATIO,
    MIN_TRUNCATION_TOKENS,
    Calibration,
    Report,
    cut_by_window,
    effective_window,
    prompt_tokens,
)
from tests.core.builders import repeatable

SIZES = st.integers(-10, 2_000_000)
PAIRS = st.lists(st.tuples(SIZES, SIZES), max_size=40)


def learned(*pairs: tuple[int, int]) -> Calibration:
    """What a model's reports teach, each an estimate and what was reported."""
    return reduce(lambda known, pair: known.observe(*pair), pairs, Calibration())


def cut(*pairs: tuple[int, int], rewritten: bool = False) -> bool:
    """Whether the last report looks cut, after the others; `rewritten`: the history changed before it."""
    *before, (estimate, reported) = pairs
    last = Report(*before[-1]) if before and not rewritten else None
    return learned(*before).truncated(estimate, reported, last)


class TestFactor:
    def test_a_model_that_never_reported_is_trusted_as_it_is(self) -> None:
        assert (Calibration().factor, Calibration().ratio, Calibration().reports) == (1.0, 1.0, 0)

    def test_it_rises_at_once(self) -> None:
        assert learned((1_000, 1_400)).factor == pytest.approx(1.4)

    def test_it_falls_by_a_tenth_of_the_way(self) -> None:
        assert learned((1_000, 1_400), (1_000, 1_000)).factor == pytest.approx(1.36)

    def test_one_odd_report_is_not_undone_and_not_kept_for_ever(self) -> None:
        odd = (1_000, 2_000)
        assert learned(odd, *[(1_000, 1_000)] * 3).factor > 1.7
        assert learned(odd, *[(1_000, 1_000)] * 60).factor < 1.01

    def test_a_frugal_tokenizer_never_takes_it_below_the_heuristic(self) -> None:
        assert learned(*[(1_000, 600)] * 50).factor == 1.0

    @pytest.mark.parametrize(("estimate", "reported"), [(1_000, 0), (0, 1_000), (0, 0), (1_000, -5)])
    def test_zero_usage_is_no_usage(self, estimate: int, reported: int) -> None:
        assert learned((1_000, 1_400), (estimate, reported)) == learned((1_000, 1_400))

    @pytest.mark.parametrize(("estimate", "reported"), [(1_000, 3_001), (10_000, 999)])
    def test_a_misreport_teaches_nothing(self, estimate: int, reported: int) -> None:
        """Cache reads summed over several calls (gsd-pi#2358), or left out (opencode#47832)."""
        assert learned((estimate, reported)) == Calibration()

    def test_both_ends_of_what_is_believed_are_inclusive(self) -> None:
        assert learned((1_000, 3_000)).factor == MAX_FACTOR
        assert learned((10_000, 1_000)).ratio == MIN_RATIO

    def test_a_proxy_that_counts_forty_percent_more_is_learned_from_its_first_report(self) -> None:
        assert learned((50_000, 70_000)).factor == pytest.approx(1.4)
        assert not cut((50_000, 70_000), (60_000, 84_000))

    @repeatable(200)
    @given(PAIRS)
    def test_it_stays_between_one_and_three(self, pairs: list[tuple[int, int]]) -> None:
        known = learned(*pairs)
        assert 1.0 <= known.factor <= MAX_FACTOR
        assert MIN_RATIO <= known.ratio <= MAX_FACTOR

    @repeatable(200)
    @given(PAIRS, st.integers(1, 1_000_000), st.floats(1, MAX_FACTOR))
    def test_after_a_report_the_same_request_is_never_counted_lower_than_reported(
        self, pairs: list[tuple[int, int]], estimate: int, ratio: float
    ) -> None:
        reported = int(estimate * ratio)
        assert estimate * learned(*pairs, (estimate, reported)).factor >= reported - 1e-6

    @repeatable(200)
    @given(PAIRS, st.integers(1, 1_000_000), st.integers(1, 1_000_000))
    def test_one_report_lowers_it_by_a_tenth_of_the_way_at_most(
        self, pairs: list[tuple[int, int]], estimate: int, reported: int
    ) -> None:
        before = learned(*pairs)
        after = before.observe(estimate, reported)
        assert after.factor >= before.factor - 0.1 * (before.factor - MIN_RATIO) - 1e-9


class TestRejections:
    def test_a_stated_count_raises_the_factor_at_once(self) -> None:
        assert Calibration().reject(10_000, 15_000).factor == pytest.approx(1.5)

    def test_it_is_no_report_of_usage(self) -> None:
        assert Calibration().reject(10_000, 15_000).reports == 0

    @pytest.mark.parametrize(("estimate", "counted"), [(10_000, 10_000), (10_000, 0), (10_000, -1), (0, 5)])
    def test_a_count_that_is_not_above_ours_teaches_nothing(self, estimate: int, counted: int) -> None:
        assert Calibration(1.2).reject(estimate, counted) == Calibration(1.2)

    def test_it_never_lowers_and_never_passes_three(self) -> None:
        assert Calibration(1.8).reject(10_000, 15_000).factor == 1.8
        assert Calibration().reject(10, 100_000).factor == MAX_FACTOR


class TestSilentTruncation:
    """Each server of section 3, with a window of 16,000 tokens unless it is said otherwise."""

    def test_ollama_keeps_half_of_its_window(self) -> None:
        assert cut((14_000, 14_100), (16_200, 8_002))

    @pytest.mark.parametrize("reported", [8_002, 8_000, 2_050, 4_096])
    def test_a_first_prompt_that_is_reported_as_a_window_or_half_of_one(self, reported: int) -> None:
        assert cut((20_000, reported))

    def test_a_first_prompt_in_a_script_that_a_tokenizer_is_frugal_with_is_not_cut(self) -> None:
        """o200k takes 0.44 tokens a letter of Hindi or Tamil, for which our weight is 1."""
        assert not cut((20_000, 8_801))
        assert not cut((20_000, 8_801), (26_000, 11_440))
        assert cut((20_000, 8_801), (27_000, 8_700)), "a longer one that is reported shorter is"

    def test_a_rolling_window_reports_less_than_before(self) -> None:
        """LM Studio, llama.cpp with context shift, OpenRouter's middle-out."""
        assert cut((15_000, 15_100), (20_200, 14_800))

    def test_one_report_that_is_a_little_lower_proves_nothing(self) -> None:
        """Reasoning of earlier turns is in our count and no longer in the provider's."""
        assert not cut((15_000, 15_100), (17_000, 14_801))

    def test_a_second_one_in_a_row_does(self) -> None:
        known, dipped = learned((15_000, 15_100), (17_000, 14_801)), Report(15_000, 15_100, dips=1)
        assert known.truncated(19_000, 14_900, dipped)
        assert not known.truncated(19_000, 15_200, dipped)

    def test_it_is_not_what_the_next_one_is_compared_with(self) -> None:
        before, lower, higher = Report(15_000, 15_100), Report(17_000, 14_801), Report(18_000, 15_200)
        assert Calibration.reference(None, before) == before
        assert Calibration.reference(before, lower) == Report(15_000, 15_100, dips=1)
        assert Calibration.reference(before, higher) == higher
        assert Calibration.reference(higher, before) == before

    def test_a_window_that_is_filled_exactly_reports_the_same_again(self) -> None:
        assert cut((18_000, 16_000), (20_000, 16_000))

    def test_a_count_that_never_moves_is_made_up(self) -> None:
        assert not cut((2_000, 1_100), (4_000, 1_100))

    def test_a_prompt_of_the_same_size_may_report_the_same(self) -> None:
        assert not cut((15_000, 15_100), (15_000, 15_100))

    def test_a_count_below_half_of_the_running_ratio(self) -> None:
        usual = [(4_000, 4_000), (5_000, 5_000)]
        assert cut(*usual, (60_000, 16_000), rewritten=True)
        assert cut(*usual, (60_000, 8_002), rewritten=True)
        assert not cut(*usual, (60_000, 32_000), rewritten=True)

    def test_a_change_of_language_or_a_drawn_table_is_no_cut(self) -> None:
        korean = [(1_000, 2_690)]
        assert not cut(*korean, (1_370, 1_072), rewritten=True)
        assert not cut((5_000, 4_900), (7_096, 2_367), rewritten=True)

    def test_after_a_compaction_a_smaller_report_is_right(self) -> None:
        assert not cut((15_000, 15_100), (6_000, 6_100))
        assert not cut((5_000, 6_100), (6_000, 6_000), rewritten=True)

    def test_a_small_prompt_says_nothing(self) -> None:
        before = (500, 500)
        assert not cut(before, (MIN_TRUNCATION_TOKENS - 1, 400))
        assert cut(before, (MIN_TRUNCATION_TOKENS, 400))

    def test_cache_reads_left_out_are_a_misreport_and_no_truncation(self) -> None:
        """opencode#47832: 3.17 million true tokens seen as 3 to 15."""
        assert not cut((40_000, 41_000), (44_000, 15))
        assert not cut((40_000, 41_000), (44_000, 4_399))

    def test_zero_usage_says_nothing(self) -> None:
        assert not cut((14_000, 14_100), (16_000, 0))

    def test_a_frugal_tokenizer_is_not_taken_for_a_cut(self) -> None:
        """Proxies count by 15 to 40 % less than others; from there on the running ratio is the measure."""
        growing = [(n, n * 6 // 10) for n in range(2_000, 40_000, 2_000)]
        assert not any(cut(*growing[: end + 1]) for end in range(len(growing)))

    @repeatable(200)
    @given(st.floats(0.2, MAX_FACTOR), st.lists(st.integers(50, 30_000), min_size=1, max_size=30))
    def test_an_honest_provider_is_never_suspected(self, ratio: float, growth: list[int]) -> None:
        estimate, known, last = 1_501, Calibration().observe(1_501, int(1_501 * ratio)), None
        for more in growth:
            estimate += more
            reported = int(estimate * ratio)
            assert not known.truncated(estimate, reported, last)
            known, last = known.observe(estimate, reported), Report(estimate, reported)


class TestEffectiveWindow:
    @pytest.mark.parametrize(
        ("reported", "window"),
        [
            (8_002, 16_000),
            (2_050, 4_096),
            (4_098, 8_192),
            (16_386, 32_768),
            (15_872, 15_872),
            (16_000, 16_000),
            (8_003, 8_003),
            (300, MIN_LEARNED_WINDOW),
            (2, MIN_LEARNED_WINDOW),
        ],
    )
    def test_half_of_a_round_number_and_two_means_that_number(self, reported: int, window: int) -> None:
        assert effective_window(reported) == window

    @given(st.integers(0, 2_000_000))
    def test_it_is_never_below_what_was_reported(self, reported: int) -> None:
        assert effective_window(reported) >= max(reported, MIN_LEARNED_WINDOW)


@pytest.mark.parametrize(
    ("input_tokens", "cached", "whole"),
    [(12_000, 10_000, 12_000), (2_000, 10_000, 12_000), (10_000, 10_000, 10_000), (0, 0, 0), (700, 0, 700)],
)
def test_cached_tokens_are_added_only_where_the_provider_left_them_out(
    input_tokens: int, cached: int, whole: int
) -> None:
    assert prompt_tokens(input_tokens, cached) == whole


@pytest.mark.parametrize(
    ("prompt", "answer", "limit", "window_was_full"),
    [
        (2_007, 41, None, True),
        (2_006, 41, None, True),
        (2_007, 41, 400, True),
        (2_007, 400, 400, False),
        (2_007, 390, 400, False),
        (1_048, 1_000, None, False),
        (2_000, 333, None, False),
        (0, 41, None, False),
    ],
)
def test_an_answer_cut_by_a_full_window_is_told_from_one_cut_by_its_limit(
    prompt: int, answer: int, limit: int | None, window_was_full: bool
) -> None:
    assert cut_by_window(prompt, answer, limit) is window_was_full
