"""Write `reference/speed.md` and its chart from `benchmarks/results`: of each benchmark the newest
file on each device.

    python docs/generate_speed.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).absolute().parent))

from generate_drawings import Canvas
from manual_tables import table

from vitreous.palette import OUTCOME_COLOURS, Theme

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "speed.md"

Race = dict[str, Any]

HEAD = """# Speed

How long Vitreous takes: compared with other tools, relative to the model alone, and from the
command line. Losses and missed goals are included, and [listed at the end](#where-it-is-slower).

Every number comes from a script in `benchmarks/` and a dated file in `benchmarks/results/`, which
records the versions; a test compares this page with the files. Times on a CPU are processor seconds
of one thread. Times on a GPU are seconds of the clock on one H200. A *goal* is what we aimed at.
Ratios depend on the machine: in three runs of the same code, landscapes were 1.27, 1.30 and 1.50
times as fast as the best other tool.
"""


@dataclass(frozen=True)
class Comparison:
    """A task done with Vitreous and with another tool: both times, in seconds."""

    task: str
    other: str
    ours: float
    theirs: float
    on: str
    goal: float | None = None

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours

    def cells(self) -> tuple[str, ...]:
        times = f"{self.ratio:.2f}" if self.ratio < 10 else f"{self.ratio:.1f}"
        goal = "" if self.goal is None else f"{self.goal:g}"
        return (f"{self.task}; {self.other}", times, goal, time(self.ours), time(self.theirs),
                self.on)  # fmt: skip


def time(seconds: float) -> str:
    """Three digits and a unit, on one line."""
    if seconds < 1:
        return f"{seconds * 1000:.3g}\u00a0ms"
    return f"{seconds:.3g}\u00a0s"


def newest() -> dict[tuple[str, str], Race]:
    """The newest record of each benchmark and device; names of files end with the date."""
    found: dict[tuple[str, str], Race] = {}
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: path.stem[-10:]):
        key = path.stem.split("-")[0], "GPU" if "cuda" in path.stem else "CPU"
        found[key] = json.loads(path.read_text()) | {"file": path.stem}
    return found


def comparisons(races: dict[tuple[str, str], Race]) -> Iterator[Comparison]:
    """Everything that was also done with another tool."""
    race = races["cka", "CPU"]
    for case, ratios in race["ratios"].items():
        seconds = {row["contender"]: row["cpu_s"] for row in race["rows"] if row["case"] == case}
        size = f"CKA of {race['layers']} × {race['layers']} layers, {case}"
        goals = race["targets"] if "itself" in case else {}
        for name in ratios:
            yield Comparison(size, name, seconds["ours"], seconds[name], "CPU", goals.get(name))
    race = races["hessian", "CPU"]
    taken: dict[str, list[float]] = {}
    for row in race["rows"]:
        taken.setdefault(row["contender"], []).append(sum(row["cpu_s"]) / len(row["cpu_s"]))
    mean = {name: sum(values) / len(values) for name, values in taken.items()}
    task = "five Hessian eigenvalues, ViT of 0.68 M parameters"
    for name, goal in race["targets"].items():
        yield Comparison(task, name, mean["ours"], mean[name], "CPU", goal)
    race = races["landscape", "CPU"]
    best = race["best_cpu_s"]
    task = f"loss landscape of {race['points']} × {race['points']} points"
    for name, goal in (("loss-landscapes", race["target"]), ("copy", None)):
        other = "a loop over copies" if name == "copy" else name
        yield Comparison(task, other, best["ours"], best[name], "CPU", goal)
    _, ours, theirs = races["decode", "CPU"]["rows"]
    task = f"loading {ours['images']:,} JPEGs at 224 pixels, and keeping them"
    yield Comparison(task, "torchvision's ImageFolder", ours["cpu_s"], theirs["cpu_s"], "CPU")
    rows = {row["contender"]: row["ms"] / 1000 for row in races["train", "GPU"]["rows"]}
    task = "a training step of ViT-Ti/4 with augmentation, batch 1,024"
    yield Comparison(task, "a loop on timm's loader", rows["ours"], rows["timm"], "GPU")
    race = races["convit", "GPU"]
    compiled = [row for row in race["rows"] if row["mode"] == "compiled"]
    steps = {(row["case"], row["contender"]): row["ms"] / 1000 for row in compiled}
    for case in ("s@448", "s@224", "b@224", "ti/4@32"):
        name = case.replace("@", " at ").capitalize()
        task = f"a training step of ConViT-{name} pixels"
        yield Comparison(task, "timm", steps[case, "ours"], steps[case, "timm"], "GPU")


def beside_the_model(races: dict[tuple[str, str], Race]) -> Iterator[tuple[str, ...]]:
    """What observing and measuring cost, as multiples of a plain forward pass."""
    for on in ("CPU", "GPU"):
        race = races["battery", on]
        goals = race["targets"]
        yield (f"all probes of `inspect`, {race['images']:,} images", f"{race['time']:.2f}",
               f"{goals['time']:g}", f"{race['memory']:.2f}", f"{goals['memory']:g}",
               on)  # fmt: skip
    race = races["observe", "CPU"]
    rows = {row["contender"]: row for row in race["rows"]}
    for name, what in (("streams", "before and after"), ("streams and attention", "attention too")):
        goals = race["targets"] if name == "streams" else {}
        yield (f"`observe`, every unit, {what}", f"{rows[name]['time']:.2f}",
               f"{goals['time']:g}" if goals else "", f"{rows[name]['memory']:.2f}",
               f"{goals['memory']:g}" if goals else "", "CPU")  # fmt: skip
    race = races["linear_probe", "CPU"]
    yield (f"{race['probes']} linear probes of all units, {race['at']:,} images (computed from "
           f"{race['images']:,})", f"{race['ratio']:.2f}", f"{race['target']:g}", "", "",
           "CPU")  # fmt: skip


def rates(races: dict[tuple[str, str], Race]) -> Iterator[tuple[str, ...]]:
    """Images per second, and the goal."""
    if ("train", "GPU") in races:
        speed = {row["contender"]: row["per_second"] for row in races["train", "GPU"]["rows"]}
        yield "training ViT-Ti/4, batch 1,024", f"{speed['ours']:,.0f}", "60,000", "GPU"
        fixed = f"{speed['fixed tensors']:,.0f}"
        yield "the same on fixed tensors, without augmentation", fixed, "", "GPU"
    if ("stack", "GPU") in races:
        race = races["stack", "GPU"]
        speeds = {(row["case"], row["contender"]): row["per_second"] for row in race["rows"]}
        for (case, contender), speed in speeds.items():
            kind = case.replace("vit_ti", "ViT-Ti").replace("conViT", "ConViT")
            goal = ""
            if (case, contender) == ("vit_ti/4", "4 seeds"):
                goal = f"{race['target'] * speeds[case, 'one seed']:,.0f}"
            yield f"training {contender} of {kind}, batch 96 each", f"{speed:,.0f}", goal, "GPU"
    for row in races["world", "CPU"]["rows"]:
        if row["task"] == "shapes":
            goal = races["world", "CPU"]["targets"][str(row["image"])]
            yield (f"drawing `world:shapes`, {row['image']} pixels",
                   f"{row['per_second']:,.0f}", f"{goal:,}", "CPU")  # fmt: skip


def durations(races: dict[tuple[str, str], Race]) -> Iterator[tuple[str, ...]]:
    """Seconds of single tasks, and the goal."""
    race = races["hessian", "GPU"]
    yield (f"five Hessian eigenvalues of ViT-Ti/4, {race['batches']} batches of 16",
           time(race["seconds"]), f"{race['target_s']:g} s", "GPU")  # fmt: skip
    race = races["landscape", "GPU"]
    grid = f"loss landscape, {race['points']} × {race['points']} points"
    alone = race["seconds"]["one at a time"]
    yield grid, time(alone / race["ratio"]), time(alone / race["target"]), "GPU"
    yield f"{grid}, one point at a time", time(alone), "", "GPU"
    race = races["corruptions", "CPU"]
    kinds = [row["ms_one"] for row in race["rows"] if row["case"].endswith("224 px")]
    yield (f"all {len(kinds)} corruptions of one image of 224 pixels",
           time(sum(kinds) / 1000), "19 ms", "CPU")  # fmt: skip
    race = races["decode", "CPU"]
    ours = race["rows"][0]
    yield (f"loading {race['images']:,} JPEGs of 500 × 375 at 224 pixels, "
           f"{ours['peak_mib']:,.0f} MiB of memory: processor time over {race['cores']} cores",
           time(race["estimate_s"]), f"{race['target_s']:g} s", "CPU")  # fmt: skip


def start_up(race: Race) -> Iterator[tuple[str, ...]]:
    for row in race["rows"]:
        yield (f"`vitreous {row['command']}`", f"{row['cpu_s']:.2f}",
               f"{row['clock_median_s']:.2f}", f"{race['target_s']:g}")  # fmt: skip


def models_of(race: Race) -> dict[str, dict[str, Any]]:
    """Times of the explorer by model and action."""
    found: dict[str, dict[str, Any]] = {}
    for row in race["rows"]:
        found.setdefault(row["model"], {})[row["action"]] = row
    return found


def edits(race: Race) -> Iterator[tuple[str, ...]]:
    for model, actions in models_of(race).items():
        edit = actions["edit"]
        keys = ("min_ms", "median_ms", "p95_ms", "cpu_median_ms")
        yield (f"`{model}`", *(f"{edit[key]:.0f}" for key in keys), live_goal(race, model))


def live_goal(race: Race, model: str) -> str:
    """The longest time that an edit should take, if there is a goal for the model."""
    goals = race["targets_ms"].items()
    return next((f"{most:g}" for name, most in goals if model.startswith(name)), "")


ACTIONS = {
    "second": "2nd edit", "slide": "slider", "image": "image", "stream": "stream",
    "click": "click", "undo": "undo",
}  # fmt: skip


def other_actions(race: Race) -> Iterator[tuple[str, ...]]:
    for model, actions in models_of(race).items():
        both = (actions[name] for name in ACTIONS)
        cells = (f"{each['median_ms']:.0f} ({each['p95_ms']:.0f})" for each in both)
        yield (f"`{model}`", *cells)


def losses(races: dict[tuple[str, str], Race]) -> Iterator[str]:
    """Sentences about what is slower than another tool, or misses its goal."""
    for row in comparisons(races):
        missed = f", goal {row.goal:g}" if row.goal and row.ratio < row.goal else ""
        if row.ratio < 1 or (missed and row.ratio >= 1.05):
            yield f"{row.task}: {row.ratio:.2f} times as fast as {row.other}{missed}."
        elif row.ratio < 1.05:
            yield f"{row.task}: as fast as {row.other}{missed}."
    for what, speed, goal, _ in rates(races):
        if goal and float(speed.replace(",", "")) < float(goal.replace(",", "")):
            yield f"{what}: {speed} images/s, goal {goal}."
    race = races["live", "CPU"]
    for model, actions in models_of(race).items():
        goal, median = live_goal(race, model), actions["edit"]["median_ms"]
        if goal and median > float(goal):
            yield f"`vitreous live`, an edit of `{model}`: {median:.0f} ms, goal {goal} ms."


def files(races: dict[tuple[str, str], Race], *names: str) -> str:
    """The sentence that names the files of a section."""
    listed = [f"`{race['file']}`" for (name, _), race in races.items() if name in names]
    return f"From {', '.join(sorted(listed))}."


PICTURE = """```{{image}} speed{suffix}.svg
:alt: Dots on a logarithmic axis for each task and other tool, {least} to {most} times as fast.
:class: only-{theme}
```
"""


def chart(rows: list[Comparison], theme: Theme) -> Canvas:
    """How many times as fast, on a logarithmic axis: a dot for each row, a bar for its goal."""
    left, right, top, step = 400, 690, 34, 24
    canvas = Canvas(740, top + step * len(rows) + 40, theme, "Times as fast as other tools")

    def x(ratio: float) -> float:
        return left + (right - left) * (log10(ratio) - log10(0.5)) / (log10(100) - log10(0.5))

    bottom = top + step * len(rows)
    for tick in (0.5, 1, 2, 5, 10, 20, 50, 100):
        canvas.line(f"M{x(tick):.1f} {top - 8}V{bottom}", width=1.5 if tick == 1 else 0.25)
        canvas.text(x(tick), bottom + 16, f"{tick:g}", anchor="middle", size=12)
    canvas.text(left, 16, "slower", faint=True, size=12)
    canvas.text(right, 16, "times as fast as the other tool", faint=True, size=12, anchor="end")
    faster, slower = (OUTCOME_COLOURS[theme][name] for name in ("supported", "refuted"))
    for number, row in enumerate(rows):
        y = top + step * number + 8
        task = row.task.replace(", ViT of 0.68 M parameters", "").replace(", and keeping them", "")
        task = task.replace(" with augmentation, batch 1,024", "").replace(" pixels", "")
        canvas.text(left - 14, y + 4, f"{task}; {row.other}", anchor="end", size=12)
        if row.goal:
            canvas.line(f"M{x(row.goal):.1f} {y - 7}V{y + 7}", width=2)
        canvas.dot(x(row.ratio), y, faster if row.ratio >= 1 else slower, radius=5)
        said = f"{row.ratio:.2f}" if row.ratio < 10 else f"{row.ratio:.0f}"
        canvas.text(x(row.ratio) + 10, y + 4, said, size=12)
    return canvas


def page() -> str:
    races = newest()
    rows = sorted(comparisons(races), key=lambda row: -row.ratio)
    cka, startup, live = races["cka", "CPU"], races["startup", "CPU"], races["live", "CPU"]
    errors = {(row["contender"], row["case"]): row["error"] for row in cka["rows"]}
    tools = [name for name, case in errors if "itself" in case]
    accuracy = [
        ("Vitreous" if name == "ours" else name,
         *(f"{errors[name, case]:.1e}" for case in cka["ratios"]))
        for name in tools
    ]  # fmt: skip
    ends = {"least": f"{rows[-1].ratio:.1f}", "most": f"{rows[0].ratio:.0f}"}
    load = f"{min(live['load']):.0f} to {max(live['load']):.0f}"
    return "\n".join([
        HEAD,
        "## Compared with other tools\n",
        PICTURE.format(suffix="", theme="light", **ends),
        PICTURE.format(suffix="-dark", theme="dark", **ends),
        "A dot right of 1 means that Vitreous is faster. The short vertical bar is the goal.\n",
        table(("task; other tool", "times as fast", "goal", "Vitreous", "other", "on"),
              [row.cells() for row in rows]),
        "For two models Vitreous computes three maps of CKA (each model with itself, and both), "
        "the others one.\nIts values also have intervals. The largest errors of the values are:\n",
        table(("tool", *cka["ratios"]), accuracy),
        files(races, "cka", "hessian", "landscape", "decode", "train", "convit") + "\n",
        "## Relative to the model alone\n",
        "Multiples of a plain forward pass of ViT-S/16 over the same images. Goals are upper "
        "limits.\n",
        table(("measurement", "time", "goal", "memory", "goal", "on"), beside_the_model(races)),
        files(races, "battery", "observe", "linear_probe") + "\n",
        "## Images per second\n",
        table(("task", "images/s", "goal", "on"), rates(races)),
        files(races, "train", "stack", "world") + "\n",
        "## Single tasks\n",
        table(("task", "time", "goal", "on"), durations(races)),
        files(races, "hessian", "landscape", "corruptions", "decode") + "\n",
        "## Start-up\n",
        "Seconds from the start of Python to its end, without torch, with compiled bytecode: "
        "processor time (best of several runs)\nand time by the clock (median).\n",
        table(("command", "processor", "clock", "goal"), start_up(startup)),
        files(races, "startup") + "\n",
        "## The explorer\n",
        "Milliseconds from a request of the page to the last byte of the answer, each for a state "
        "that was not requested before.\nThey were measured while other programs used the two "
        f"cores (load {load}), so times by the clock include waiting.\n",
        "An edit: best, median and 95th percentile by the clock, and median processor time.\n",
        table(("model", "best", "median", "95th percentile", "processor", "goal"), edits(live)),
        "Other actions, median (95th percentile) by the clock: a second edit on top of the first, "
        "a slider, another image, the stream of\na unit, a click on a patch, undo.\n",
        table(("model", *ACTIONS.values()), other_actions(live)),
        files(races, "live") + "\n",
        "## Where it is slower\n",
        "Tasks where Vitreous is only as fast as another tool or slower, or misses its goal:\n",
        "\n".join(f"- {each[0].upper()}{each[1:]}" for each in losses(races)) + "\n",
    ])  # fmt: skip


def write() -> None:
    """The page and its chart, light and dark."""
    PAGE.write_text(page(), encoding="utf-8")
    rows = sorted(comparisons(newest()), key=lambda row: -row.ratio)
    for theme, suffix in (("light", ""), ("dark", "-dark")):
        picture = chart(rows, theme).svg()
        PAGE.with_name(f"speed{suffix}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write()
