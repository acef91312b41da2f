"""Drawing a version by weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Generic, Protocol, TypeVar


class Rng(Protocol):
    """The part of ``random.Random`` that balancing uses."""

    def random(self) -> float: ...


T = TypeVar("T")


class Draw(Generic[T]):
    """A distribution over items by whole-number weights.

    Items of weight 0 are left out, so no rounding can ever draw one.
    """

    __slots__ = ("_items", "_sums", "_weights")

    def __init__(self, weighted: Sequence[tuple[T, int]]) -> None:
        kept = [(item, weight) for item, weight in weighted if weight > 0]
        self._items = [item for item, _ in kept]
        self._weights = [weight for _, weight in kept]
        self._sums = list(accumulate(self._weights))

    def __bool__(self) -> bool:
        return bool(self._items)

    def take(self, rng: Rng) -> tuple[T, float]:
        """One item and the probability with which it was drawn."""
        total = self._sums[-1]
        index = bisect_right(self._sums, int(rng.random() * total))
        return self._items[index], self._weights[index] / total
