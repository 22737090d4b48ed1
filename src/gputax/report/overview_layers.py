"""The first screen of comparisons: each layer by its typical cost, with its worst metric beside it; pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputax.plan.environment import EnvironmentName
from gputax.plan.runtimes import runtime_family
from gputax.plan.workloads import MICRO, OPERATIONS
from gputax.report import wording
from gputax.report.answers import SEVERITY, TYPICAL_OPERATION, LayerAnswer, metric_words
from gputax.report.charts.comparison import in_percent
from gputax.report.charts.overview import LONGEST_LINE, shortened
from gputax.report.grouping import Compared, Pair
from gputax.report.model import Fact, KeyNumber, OverviewRow
from gputax.report.sources import ComparisonSource
from gputax.results.documents.comparison import ComparedMetric, Resolution
from gputax.results.importers.source import UNNAMED
from gputax.text import percent

OPERATION_METRIC = "latency_p50"
LAYER_NAMES = {"proxy": "GPU proxy", "container": "Container", "k8s": "Kubernetes", "xen": "Xen"}


def layers_title(answers: Sequence[LayerAnswer]) -> Fact:
    """Return the answer as a headline, with the tone of the worst verdict."""
    worst = min((answer.verdict for answer in answers), key=SEVERITY.index)
    if len(answers) == 1:
        return Fact(_single_title(answers[0]), worst)
    passed = [answer for answer in answers if answer.verdict == "pass"]
    count = len(answers)
    if len(passed) == count:
        return Fact(f"{_costliest(answers)} of {count} layers; all pass", worst)
    if worst == "not comparable":
        names = [answer.pair.other.label for answer in answers if answer.verdict == worst]
        return Fact(f"{wording.some(names, 1)} cannot be compared; {len(passed)} of {count} layers pass", worst)
    chosen = [answer for answer in answers if answer.verdict == worst]
    if len(chosen) > 1 and worst == "inconclusive":
        return Fact(f"{_costliest(answers).rstrip(',')}; {len(chosen)} of {count} layers are undecided", worst)
    rest = f"{len(passed)} of {count} layers pass"
    answer = max(chosen, key=lambda each: not each.hidden)
    cost = wording.short_overhead(answer.typical.metric)
    if answer.hidden:
        return Fact(f"{answer.pair.other.label} costs {cost}{_others(answer)}; {rest}", worst)
    one = len(chosen) == 1
    verb = ("fails" if one else "fail") if worst == "fail" else ("is" if one else "are") + " undecided"
    name = added_layer(answer.pair) if one else f"{answer.pair.other.label} and {len(chosen) - 1} more"
    return Fact(f"{name} {verb}{'' if cost == wording.DASH else f' at {cost}'}; {rest}", worst)


def _costliest(answers: Sequence[LayerAnswer]) -> str:
    most = max(answers, key=lambda answer: answer.typical.metric.overhead_percent or 0.0)
    return f"{most.pair.other.label} costs most, {wording.short_overhead(most.typical.metric)},"


def _single_title(answer: LayerAnswer) -> str:
    metric, name = answer.typical.metric, added_layer(answer.pair)
    if metric.verdict == "not comparable":
        return f"{name} cannot be compared with {answer.pair.base.label}"
    cost = wording.short_overhead(metric)
    if cost == wording.DASH:
        return f"Undecided: what {name} costs over {answer.pair.base.label}"
    return f"{name} {_cost_words(cost, answer)}: {wording.WORDS[metric.verdict]}{_others(answer)}"


def _cost_words(cost: str, answer: LayerAnswer) -> str:
    row = answer.typical
    # A remark on other metrics leaves no room for the scenario, which the axis names too.
    scenario = "" if answer.hidden else f"{row.metric.scenario} "
    what = f"{row.metric.workload} {scenario}{wording.metric_title(row.metric.metric)}"
    if row.metric.workload == TYPICAL_OPERATION:
        what = "a typical operation"
    if not cost.startswith("+"):
        return f"changes {what} by {cost}"
    verb = "costs" if row.metric.metric == "throughput" else "adds"
    return f"{verb} {cost[1:]} {'of' if verb == 'costs' else 'to'} {what}"


def _others(answer: LayerAnswer) -> str:
    """Return how many other metrics have the layer's worse verdict."""
    if not answer.hidden:
        return ""
    count = sum(row.metric.verdict == answer.verdict and row.metric.decides for row in answer.pair.rows)
    verb = {"fail": "fails" if count == 1 else "fail"}.get(answer.verdict, wording.WORDS[answer.verdict])
    return f"; {wording.counted(count, 'metric')} {verb}"


def layer_rows(answers: Sequence[LayerAnswer]) -> tuple[str, list[OverviewRow]]:
    """Return what the axis shows, and a row for every layer whose cost has a number; below a model, an operation."""
    shown = [(answer, row) for answer in answers for row in (answer.typical, *operation_beside(answer))]
    same = len({metric_words(row) for _, row in shown}) == 1
    name_device = len({row.devices for _, row in shown}) > 1
    rows = []
    for answer, compared in shown:
        metric = compared.metric
        value, bounds, budget = in_percent(metric)
        if value is None:
            continue
        low, high = wording.known_bounds(bounds, "%")
        name = f"{answer.pair.other.label} over {answer.pair.base.label}"
        own = [] if same else [metric_words(compared)]
        own += [f"on {'; '.join(compared.devices)}"] if name_device else []
        beside = f"budget {wording.budget(metric)}" if budget is not None else ""
        first = compared is answer.typical
        worst = worst_line(answer, LONGEST_LINE - len(beside)) if first else ""
        cost = wording.metric_overhead(metric).replace("95 % CI ", "")
        rows.append(
            OverviewRow(
                name=name,
                value=value,
                low=low,
                high=high,
                text=f"{cost.removesuffix(' (no interval)')} {wording.MARKS[metric.verdict]} {_verdict_words(metric)}",
                tip=f"{name}, {metric_words(compared)}: {wording.metric_overhead(metric)}, "
                f"budget {wording.budget(metric)}, {wording.WORDS[metric.verdict]}{f'; {worst}' if worst else ''}",
                mark=budget,
                tone=metric.verdict,
                beside=beside,
                own=", ".join(own),
                worst=worst,
                worst_tone="" if answer.decisive is answer.typical or not first else answer.verdict,
            )
        )
    what = metric_words(answers[0].typical) if same else "each layer's typical metric"
    return f"overhead in {what}, % (right is worse)", rows


def operation_beside(answer: LayerAnswer) -> tuple[Compared, ...]:
    """Return the typical operation of a layer that a model represents, if it was measured too."""
    if answer.typical.metric.workload in OPERATIONS:
        return ()
    operation = (row for row in answer.pair.rows if row.metric.workload == TYPICAL_OPERATION)
    return tuple(row for row in operation if row.metric.metric == OPERATION_METRIC)[:1]


def _verdict_words(metric: ComparedMetric) -> str:
    """Return the verdict; of what has no interval, where its value lies."""
    if metric.by_value and metric.ci95_percent is None and metric.ci95_absolute is None:
        return metric.by_value.replace(" budget", "")
    return wording.WORDS[metric.verdict]


def worst_line(answer: LayerAnswer, longest: int) -> str:
    """Return the worst metric of several in one line; where there is little room, its name is cut, not its verdict."""
    count, metric = sum(row.metric.decides for row in answer.pair.rows), answer.decisive.metric
    if answer.decisive is answer.typical:
        return f"the worst of {count} metrics" if count > 1 else ""
    cost = wording.short_overhead(metric)
    end = ("" if cost == wording.DASH else f" {cost}") + f", {wording.WORDS[metric.verdict]}"
    begin = f"{wording.MARKS[metric.verdict]} worst of {count}: "
    return begin + shortened(_short_words(answer.decisive), longest - len(begin) - len(end)) + end


def _short_words(row: Compared) -> str:
    """Return a metric where there is room for little, e.g. `allocate p50 latency`."""
    metric = row.metric
    if metric.workload not in OPERATIONS:
        cell = "" if row.cell == UNNAMED else f"{row.cell} "
        return f"{cell}{wording.metric_title(metric.metric)}"
    operation = OPERATIONS[metric.workload]
    title = "bandwidth" if metric.metric == operation.bandwidth_metric else wording.metric_title(metric.metric)
    return f"{operation.name.removeprefix(f'{MICRO}:')} {title}"


def added_layer(pair: Pair) -> str:
    """Return what the other side has beyond its base, e.g. `GPU proxy`; its label where that is not one layer."""
    base, other = EnvironmentName.parse(pair.base.environment), EnvironmentName.parse(pair.other.environment)
    added = other.beyond(base)
    if len(added) != 1 or not set(base.layers) < set(other.layers):
        return pair.other.label
    family = runtime_family(added[0])
    return LAYER_NAMES.get(added[0]) or (family.title if family else pair.other.label)


def layer_numbers(answers: Sequence[LayerAnswer], comparisons: Sequence[ComparisonSource]) -> list[KeyNumber]:
    """Return the highest cost, the two values it comes from, and how much is noise."""
    answer = max(answers, key=lambda each: wording.finite(each.typical.metric.overhead_percent) or 0.0)
    metric = answer.typical.metric
    what, device = metric_words(answer.typical), "; ".join(answer.typical.devices)
    numbers = []
    if wording.short_overhead(metric) != wording.DASH:
        numbers.append(KeyNumber(wording.short_overhead(metric), f"{answer.pair.other.label}, {what}", device))
    base, other = wording.finite(metric.base_value), wording.finite(metric.other_value)
    if base is not None and other is not None:
        sides = f"{answer.pair.base.label} to {answer.pair.other.label}"
        numbers.append(KeyNumber(from_to(base, other, metric.unit), f"{what}, {sides}", device))
    floors = [source.comparison.resolution for source in comparisons if source.comparison.resolution is not None]
    coarsest: Resolution | None = max(floors, key=lambda each: each.half_width_percent, default=None)
    if coarsest is not None and wording.finite(coarsest.half_width_percent) is not None:
        text = f"±{percent(coarsest.half_width_percent)}"
        numbers.append(KeyNumber(text, "noise floor: the base against itself", device))
    else:
        passed = sum(each.verdict == "pass" for each in answers)
        numbers.append(KeyNumber(f"{passed} of {len(answers)}", "layers that pass every budget", device))
    return numbers


def from_to(base: float, other: float, unit: str) -> str:
    """Return e.g. `136 → 140 µs`, in the unit that has digits before the point."""
    if unit == "ms" and max(base, other) < 1.0:
        base, other, unit = base * 1000.0, other * 1000.0, "µs"
    return f"{wording.number(base)} → {wording.number(other)} {unit}"
