"""What a comparison found: one row per figure, as `shardline bench` prints its own."""

import dataclasses
import json
import statistics
import sys
from collections.abc import Callable


@dataclasses.dataclass
class Comparison:
    """Paired measurements, both sides of a pair one right after the other."""

    name: str
    yardstick: str  # who is compared with
    target: float | None = None  # least ratio; None: shown, not judged
    ours: list[float] = dataclasses.field(default_factory=list)  # answer tokens/s, one per round
    theirs: list[float] = dataclasses.field(default_factory=list)

    def add(self, ours: float, theirs: float) -> None:
        self.ours.append(ours)
        self.theirs.append(theirs)

    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    def row(self) -> dict:
        ratio = statistics.median(self.ratios())
        return {
            "name": self.name,
            "value": statistics.median(self.ours),
            "unit": "tok/s",
            "yardstick": self.yardstick,
            "yardstick_value": statistics.median(self.theirs),
            "ratio": ratio,
            "ratios": self.ratios(),
            "target": self.target,
            "met": None if self.target is None else ratio >= self.target,
            "simulated": False,
        }


def measure_pair(
    number: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[float, float]:
    """Both measured, one right after the other; who goes first changes from round to round."""
    if number % 2:
        first = ours()
        return first, theirs()
    second = theirs()
    return ours(), second


def judgement(row: dict) -> str:
    if row["target"] is None:
        return ""
    return f">= {row['target']:.2f} {'met' if row['met'] else 'MISSED'}"


def print_report(comparisons: list[Comparison], facts: dict[str, str], as_json: bool) -> None:
    """`facts` says what was measured and how: versions, settings, the load of the machine."""
    rows = [comparison.row() for comparison in comparisons]
    if as_json:
        json.dump({"facts": facts, "rows": rows}, sys.stdout, indent=2)
        print()
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")
    print()
    for row in rows:
        spread = f"{min(row['ratios']):.2f}..{max(row['ratios']):.2f}"
        yardstick = f"{row['ratio']:.3f} x {row['yardstick']} ({row['yardstick_value']:.1f})"
        print(
            f"{row['name']:<28} {row['value']:>9.1f} tok/s  {yardstick:<34} "
            f"{judgement(row):<15} [{spread}]"
        )
