"""A short run of the soak; `make soak` is the long one."""

from __future__ import annotations

import soak


def test_answers_bits_and_memory_survive_the_crowd() -> None:
    assert not soak.run(seconds=20, seed=1, num_cases=64)
