"""Interleaved rounds, medians and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """A measured ratio and its bar; above the bar (or below a least) it fails."""

    name: str
    value: float
    most: float | None = None
    least: float | None = None
    unit: str = "x"

    @property
    def holds(self) -> bool:
        """Whether the bar holds."""
        return not (
            (self.most is not None and self.value > self.most)
            or (self.least is not None and self.value < self.least)
        )


async def interleaved(
    works: Mapping[str, Callable[[], Awaitable[float]]], rounds: int
) -> dict[str, list[float]]:
    """Every work once a round, in turn; what each round measured."""
    measured: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        await work()  # warm
    for _ in range(rounds):
        for name, work in works.items():
            measured[name].append(await work())
    return measured


def median(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def ratio_of(measured: Mapping[str, list[float]], ours: str, base: str) -> float:
    """The median over the rounds of ours ÷ base in the same round."""
    return statistics.median(a / b for a, b in zip(measured[ours], measured[base], strict=True))
