"""The plots of a report as inline SVG: shapes only, placed in percent so that they fit any width without a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from api.runs.models import Distribution, GateOutcome, Metric
from api.runs.reports.markup import Html, element
from api.runs.reports.wording import write_interval, write_number

_HISTOGRAM_HEIGHT = 96.0
# The part of the width beyond the largest value that is shown, where the scale has no end of its own.
_HEADROOM = 0.15


@dataclass(frozen=True, slots=True)
class Scale:
    """A stretch of numbers on a plot's width.

    Attributes
    ----------
    low, high
        At 0 % and at 100 %; low < high.
    """

    low: float
    high: float

    @classmethod
    def of_metric(cls, metric: Metric, gates: Sequence[GateOutcome]) -> Self:
        """Return the evaluator's whole scale, or what holds interval and gates where that has no ends."""
        shown = [metric.mean, metric.ci_low, metric.ci_high]
        shown += [bound for gate in gates for bound in (gate.min, gate.max)]
        values = [value for value in shown if value is not None] or [0.0]
        low, high = min(values), max(values)
        margin = (high - low) * _HEADROOM or abs(high) * _HEADROOM or 1.0
        low = low - margin if metric.minimum is None else metric.minimum
        high = high + margin if metric.maximum is None else metric.maximum
        return cls(low, high) if low < high else cls(low, low + 1.0)

    def place(self, value: float) -> str:
        """Return where a value is, in percent; beyond the ends, at the end."""
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return f"{min(max(share, 0.0), 1.0) * 100:.2f}%"


def draw_interval(metric: Metric, gates: Sequence[GateOutcome]) -> Html:
    """Draw mean, 95 % interval and the bounds of the gates of a metric on one line."""
    if metric.mean is None:
        return element("p", "nothing was scored", class_="muted small")
    scale = Scale.of_metric(metric, gates)
    shapes = [element("line", x1="0%", x2="100%", y1="13", y2="13", class_="axis")]
    if metric.ci_low is not None and metric.ci_high is not None:
        left, right = scale.place(metric.ci_low), scale.place(metric.ci_high)
        shapes += [
            element("line", x1=left, x2=right, y1="13", y2="13", class_="range"),
            element("line", x1=left, x2=left, y1="6", y2="20", class_="end"),
            element("line", x1=right, x2=right, y1="6", y2="20", class_="end"),
        ]
    for gate in gates:
        for bound in (gate.min, gate.max):
            if bound is not None:
                at = scale.place(bound)
                kind = "gate good" if gate.passed else "gate bad"
                shapes.append(
                    element("line", element("title", f"gate: {write_number(bound)}"), x1=at, x2=at, y1="1", y2="25",
                            class_=kind)
                )  # fmt: skip
    shapes.append(element("circle", cx=scale.place(metric.mean), cy="13", r="4", class_="dot"))
    label = f"mean {write_number(metric.mean, metric.unit)}, 95 % interval {write_interval(metric)}, on a scale from "
    label += f"{write_number(scale.low)} to {write_number(scale.high)}"
    return element(
        "div",
        element("svg", *shapes, role="img", aria_label=label, height="26", width="100%", class_="interval"),
        element(
            "div",
            element("span", write_number(scale.low)),
            element("span", write_interval(metric), class_="middle"),
            element("span", write_number(scale.high)),
            class_="ends",
            aria_hidden="true",
        ),
        class_="plot",
    )


def draw_histogram(distribution: Distribution, mean: float | None) -> Html:
    """Draw a histogram with the mean on it."""
    counts, total = distribution.counts, sum(distribution.counts)
    most = max(counts)
    width = 100 / len(counts)
    step = (distribution.high - distribution.low) / len(counts)
    bars: list[Html] = []
    for at, count in enumerate(counts):
        # A bin with a single score among many thousands still shows.
        height = max(count / most * (_HISTOGRAM_HEIGHT - 4), 1.5) if count else 0.0
        low, high = distribution.low + at * step, distribution.low + (at + 1) * step
        words = f"{write_number(low)} to {write_number(high)}: {count:,} {'score' if count == 1 else 'scores'}"
        bars.append(
            element("rect", element("title", words), x=f"{(at + 0.06) * width:.2f}%", width=f"{width * 0.88:.2f}%",
                    y=f"{_HISTOGRAM_HEIGHT - height:.1f}", height=f"{height:.1f}", rx="1.5", class_="bar")
        )  # fmt: skip
    shapes = [element("g", *bars)]
    bottom = str(_HISTOGRAM_HEIGHT)
    shapes.append(element("line", x1="0%", x2="100%", y1=bottom, y2=bottom, class_="axis"))
    if mean is not None and distribution.low < distribution.high:
        at_mean = Scale(distribution.low, distribution.high).place(mean)
        shapes.append(element("line", x1=at_mean, x2=at_mean, y1="0", y2=bottom, class_="mean"))
    fullest = counts.index(most)
    label = (
        f"Histogram of {total:,} scores from {write_number(distribution.low)} to {write_number(distribution.high)}; "
        f"most, {most:,}, lie between {write_number(distribution.low + fullest * step)} and "
        f"{write_number(distribution.low + (fullest + 1) * step)}"
    )
    return element(
        "div",
        element("svg", *shapes, role="img", aria_label=label, height="98", width="100%", class_="histogram"),
        element(
            "div",
            element("span", write_number(distribution.low)),
            element("span", f"mean {write_number(mean)}", class_="middle"),
            element("span", write_number(distribution.high)),
            class_="ends",
            aria_hidden="true",
        ),
        class_="plot",
    )


def draw_outcomes(parts: Sequence[tuple[str, str, int]]) -> Html:
    """Draw counts as one bar.

    Parameters
    ----------
    parts
        Class, name and count of each part, in their order; those of 0 are left out of the bar.
    """
    total = sum(count for _, _, count in parts) or 1
    shapes: list[Html] = []
    start = 0
    for kind, name, count in parts:
        if count:
            shapes.append(
                element("rect", element("title", f"{name}: {count:,}"), x=f"{start / total * 100:.3f}%",
                        width=f"{count / total * 100:.3f}%", y="0", height="18", class_=kind)
            )  # fmt: skip
            start += count
    label = ", ".join(f"{count:,} {name}" for _, name, count in parts if count) or "no results"
    return element("svg", *shapes, role="img", aria_label=label, height="18", width="100%", class_="outcomes")
