"""Whether the platform may start a step again by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import outcomes
from engine.outcomes import COUNTED, REPAIRABLE, RETRIED, Ended, Next, Outcome, Repairable

ENDED = st.builds(
    Ended,
    outcome=st.sampled_from(Outcome),
    tries=st.integers(1, 6),
    losses=st.integers(0, 6),
    max_attempts=st.integers(1, 5),
    backoff_s=st.just(2.0),
    idempotent=st.booleans(),
    tree_gone=st.booleans(),
    unknown=st.lists(st.just("u"), max_size=2),
    applied=st.lists(st.just("a"), max_size=2),
)


def test_every_outcome_says_whether_it_can_be_repaired():
    assert set(REPAIRABLE) == set(Outcome)
    assert [o for o, can in REPAIRABLE.items() if can is Repairable.YES] == ["script_error", "validation_failed"]


def test_what_counts_and_what_is_retried_are_the_words_of_the_product():
    assert {
        "succeeded",
        "script_error",
        "validation_failed",
        "assertion_failed",
        "timed_out",
        "limit_exceeded",
    } == COUNTED
    assert {"script_error", "validation_failed", "timed_out", "limit_exceeded"} == RETRIED


@pytest.mark.parametrize("outcome", sorted(RETRIED))
def test_it_is_tried_again_while_attempts_are_left(outcome: Outcome):
    after = outcomes.decide_after(Ended(outcome, tries=1, max_attempts=2, backoff_s=3))

    assert (after.next, after.delay_s) == (Next.AGAIN, 3)


@pytest.mark.parametrize("outcome", sorted(RETRIED))
def test_it_fails_when_no_attempt_is_left(outcome: Outcome):
    assert outcomes.decide_after(Ended(outcome, tries=2, max_attempts=2)).next is Next.FAIL


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - RETRIED - {"succeeded", "cancelled", "worker_lost"}))
def test_no_other_ending_is_tried_again(outcome: Outcome):
    assert outcomes.decide_after(Ended(outcome, tries=1, max_attempts=5, idempotent=True)).next is Next.FAIL


def test_an_unknown_mutation_is_for_a_person():
    after = outcomes.decide_after(Ended(Outcome.SCRIPT_ERROR, tries=1, max_attempts=2, idempotent=True, unknown=["c1"]))

    assert (after.next, after.reason, after.receipts) == (Next.NEEDS_ATTENTION, "mutation_unknown", ("c1",))


def test_applied_mutations_of_a_step_that_is_not_idempotent_are_listed_for_a_person():
    after = outcomes.decide_after(Ended(Outcome.TIMED_OUT, tries=1, max_attempts=2, applied=["c1", "c2"]))

    assert (after.next, after.reason, after.receipts) == (Next.NEEDS_ATTENTION, "mutations_applied", ("c1", "c2"))


def test_applied_mutations_of_an_idempotent_step_hold_nothing_back():
    ended = Ended(Outcome.TIMED_OUT, tries=1, max_attempts=2, idempotent=True, applied=["c1"])

    assert outcomes.decide_after(ended).next is Next.AGAIN


def test_a_lost_idempotent_step_is_started_again_three_times_at_most():
    after = [
        outcomes.decide_after(Ended(Outcome.WORKER_LOST, tries=n, losses=n, idempotent=True)).next for n in range(1, 5)
    ]

    assert after == [Next.AGAIN, Next.AGAIN, Next.AGAIN, Next.NEEDS_ATTENTION]


def test_any_other_lost_step_is_for_a_person():
    assert outcomes.decide_after(Ended(Outcome.WORKER_LOST, tries=1, losses=1)).next is Next.NEEDS_ATTENTION


def test_a_step_that_may_still_run_is_for_a_person():
    after = outcomes.decide_after(Ended(Outcome.WORKER_LOST, tries=1, losses=1, idempotent=True, tree_gone=False))

    assert (after.next, after.reason) == (Next.NEEDS_ATTENTION, "may_still_run")


def test_cancelled_is_said_only_when_the_tree_is_gone():
    gone, not_gone = (
        outcomes.decide_after(Ended(Outcome.CANCELLED, tries=1, tree_gone=gone)) for gone in (True, False)
    )

    assert (gone.next, not_gone.next) == (Next.CANCEL, Next.NEEDS_ATTENTION)


@given(ENDED)
def test_nothing_is_ever_started_again_that_may_have_happened(ended: Ended):
    if outcomes.decide_after(ended).next is Next.AGAIN:
        assert ended.tree_gone
        assert not ended.unknown
        assert ended.idempotent or not ended.applied
        assert ended.outcome in RETRIED or (ended.outcome is Outcome.WORKER_LOST and ended.idempotent)


@given(ENDED)
def test_it_succeeds_exactly_when_the_attempt_did(ended: Ended):
    assert (outcomes.decide_after(ended).next is Next.SUCCEED) == (ended.outcome is Outcome.SUCCEEDED)


@given(ENDED)
def test_whatever_is_left_to_a_person_says_why(ended: Ended):
    after = outcomes.decide_after(ended)

    assert after.next is not Next.NEEDS_ATTENTION or (after.reason and after.detail)
