"""What `up` hears of the supervisor that it started."""

from __future__ import annotations

import os
import time

from apps.runs.supervisor import signs
from apps.runs.timing import HUNG_S, SIGN_S


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def looked_for(listener: signs.Listener, clock: Clock, seconds: float) -> float:
    """What it says after so long, looked at again and again as `up` does."""
    silent = 0.0
    for _ in range(round(seconds)):
        clock.now += 1
        silent = listener.silent_s()
    return silent


def test_silence_counts_from_the_last_sign_and_not_before_the_first() -> None:
    clock = Clock()
    listener = signs.Listener(clock)
    assert looked_for(listener, clock, 60) == 0, "it may still start"
    os.write(listener.writing, b"...")
    assert looked_for(listener, clock, 1) == 0
    assert looked_for(listener, clock, 13) == 13 > HUNG_S
    os.write(listener.writing, b".")
    assert listener.silent_s() == 0
    listener.started()
    listener.close()


def test_who_stood_still_itself_takes_nobody_for_silent() -> None:
    clock = Clock()
    listener = signs.Listener(clock)
    os.write(listener.writing, b".")
    listener.silent_s()
    clock.now += 3600
    assert listener.silent_s() == 0
    assert looked_for(listener, clock, 13) == 13
    listener.started()
    listener.close()


def test_signs_are_given_for_as_long_as_it_goes_round() -> None:
    listener, well = signs.Listener(), True
    signs.give(os.dup(listener.writing), lambda: well)
    deadline = time.monotonic() + 20 * SIGN_S
    while listener._heard is None and time.monotonic() < deadline:
        listener.silent_s()
        time.sleep(0.01)
    heard = listener._heard
    assert heard is not None
    well = False
    time.sleep(SIGN_S * 1.5)
    listener.silent_s()
    last = listener._heard
    time.sleep(SIGN_S * 1.5)
    listener.silent_s()
    assert listener._heard == last
    listener.started()
    listener.close()
