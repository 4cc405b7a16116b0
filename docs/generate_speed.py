"""Write docs/reference/speed.md from the races in `benchmarks/results`, the newest of each kind on
each device.

python docs/generate_speed.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "speed.md"

Race = dict[str, Any]
Row = tuple[str, str, str]
"""What, how fast it was found to be, and what was wanted; nothing if nothing was."""

HEAD = """# How fast

What is measured here is measured by scripts in `benchmarks`, against other tools where there are
any, which a script installs in an environment of its own and throws away. Every number is that of a
dated file in `benchmarks/results`, which also says by which versions; a test compares this page
with those files. On a CPU times are CPU seconds of one thread, on a GPU (one H200) seconds of the
clock. Ratios depend on the machine and its state: the same code for landscapes was 1.27, 1.30 and
1.50 times as fast as the best other tool in three races.

Start-up is that of a whole process, from the start of Python to its end, without torch: the best
of several runs, the commands taking turns, with bytecode compiled. The photographs are 50,000 files
of which 2,000 differ, read from memory; processor time is that of all threads, and divided by the
number of cores it is what an idle machine would need. The clock is given beside it, with the load
of the machine at that time. `benchmarks/startup.py` and `benchmarks/decode.py` measure them again.

The explorer's times go from a request of the page to the last byte of the answer, each with a
state that was never asked for before. They were taken while other programs used the machine, so the
clock counts waiting for them; processor time is that of server and client. `benchmarks/live.py`
says what each action is.
"""


def battery(race: Race) -> Iterator[Row]:
    what = f"All questions of `inspect` together, {race['model']}, {race['images']:,} images"
    found = (
        f"{race['time']:.2f} times a plain forward pass over the same images; "
        f"{race['memory']:.2f} times its memory"
    )
    yield (
        what,
        found,
        f"{race['targets']['time']:g} and {race['targets']['memory']:g} times at most",
    )


def observe(race: Race) -> Iterator[Row]:
    rows = {row["contender"]: row for row in race["rows"]}
    for name, what in (
        ("streams", "before and after"),
        ("streams and attention", "before, after and attention"),
    ):
        row = rows[name]
        found = (
            f"{row['time']:.2f} times a plain forward pass; {row['memory']:.2f} times its memory"
        )
        aim = (
            f"{race['targets']['time']:g} and {race['targets']['memory']:g} times at most"
            if name == "streams"
            else ""
        )
        yield f"`observe`, {what} of every unit, {race['model']}", found, aim


def cka(race: Race) -> Iterator[Row]:
    wanted = race["targets"]
    for case, ratios in race["ratios"].items():
        rows = {row["contender"]: row["error"] for row in race["rows"] if row["case"] == case}
        others = (
            f"{ratio:.2g} times as fast as {name} (error {rows[name]:.2g})"
            for name, ratio in ratios.items()
        )
        aim = (
            ", ".join(f"{name} {least:g}" for name, least in wanted.items())
            if "itself" in case
            else ""
        )
        maps = (
            "one model with itself"
            if "itself" in case
            else "two models (we draw three maps, the others one)"
        )
        what = f"CKA of {race['layers']} x {race['layers']} layers, {race['images']} images, {maps}"
        yield (
            what,
            f"{', '.join(others)}; ours has an error of {rows['ours']:.2g}, and intervals",
            aim,
        )


def hessian(race: Race) -> Iterator[Row]:
    if "ratios" in race:
        found = ", ".join(
            f"{ratio:.1f} times as fast as {name}" for name, ratio in race["ratios"].items()
        )
        aim = ", ".join(f"{name} {least:g}" for name, least in race["targets"].items())
        yield (
            "Five extreme eigenvalues of the Hessian, ViT of 0.68 M parameters, batch 16",
            found,
            aim,
        )
    else:
        what = f"The same of ViT-Ti/4, {race['batches']} batches of 16"
        yield what, f"{race['seconds']:.1f} s", f"{race['target_s']:g} s at most"


def landscape(race: Race) -> Iterator[Row]:
    grid = f"{race['points']} x {race['points']} points, {race['images']} images"
    if "best_cpu_s" in race:
        others = {name: seconds for name, seconds in race["best_cpu_s"].items() if name != "ours"}
        ours = race["best_cpu_s"]["ours"]
        names = {"copy": "a loop over copies of the model"}
        said = ", ".join(
            f"{s / ours:.2f} times as fast as {names.get(name, name)}" for name, s in others.items()
        )
        yield (
            f"Loss landscape, ViT of 0.68 M parameters, {grid}",
            said,
            f"{race['target']:g} times the best",
        )
    else:
        found = f"{race['ratio']:.1f} times as fast with many copies in one pass as one by one"
        yield f"Loss landscape, {grid}", found, f"{race['target']:g} times"


def corruptions(race: Race) -> Iterator[Row]:
    kinds = [row["ms_one"] for row in race["rows"] if row["case"].endswith("224 px")]
    yield (
        f"All {len(kinds)} corruptions of one image of 224 pixels",
        f"{sum(kinds):.1f} ms",
        "19 ms at most",
    )


def linear_probe(race: Race) -> Iterator[Row]:
    how = "" if race["measured"] else f", computed from {race['images']:,}"
    what = (
        f"{race['probes']} ridge probes of all units, {race['model']}, {race['at']:,} images{how}"
    )
    yield (
        what,
        f"{race['ratio']:.2f} times a plain forward pass",
        f"{race['target']:g} times at most",
    )


def train(race: Race) -> Iterator[Row]:
    speed = {row["contender"]: row["per_second"] for row in race["rows"]}
    ours, fixed = speed["ours"], speed["fixed tensors"]
    share = f"{ours / fixed:.0%} of what fixed tensors have"
    found = f"{ours:,.0f} images/s, {share}, {ours / speed['timm']:.1f} times a loop"
    yield (
        "Training ViT-Ti/4 with augmentation, batch 1024, compiled",
        f"{found} on timm's loader",
        "60,000; 90 %",
    )


def stack(race: Race) -> Iterator[Row]:
    speeds = {(row["case"], row["contender"]): row["per_second"] for row in race["rows"]}
    for (case, contender), speed in speeds.items():
        if contender != "one seed":
            aim = (
                f"{race['target']:g} times with 4 seeds"
                if (case, contender) == ("vit_ti/4", "4 seeds")
                else ""
            )
            ratio = speed / speeds[case, "one seed"]
            found = f"{speed:,.0f} images/s together, {ratio:.2f} times one after the other"
            yield f"Training {contender} of {case} in one step, batch 96 each, compiled", found, aim


def world(race: Race) -> Iterator[Row]:
    for row in race["rows"]:
        if row["task"] == "shapes":
            aim = f"{race['targets'][str(row['image'])]:,}"
            yield (
                f"Drawing the embedded world, {row['image']} pixels",
                f"{row['per_second']:,.0f} images/s",
                aim,
            )


def decode(race: Race) -> Iterator[Row]:
    ours, few, theirs = race["rows"]
    what = (
        f"Loading {race['images']:,} JPEGs of 500 x 375 ({race['bytes'] / 1000:.0f} kB) at 224 "
        "pixels, as timm prepares them"
    )
    found = (
        f"{ours['cpu_s']:.0f} s of processor time, so {race['estimate_s']:.0f} s on "
        f"{race['cores']} idle cores ({ours['clock_s']:.0f} s by the clock at a load of "
        f"{max(race['load']):.0f}); {ours['peak_mib']:,.0f} MiB of memory"
    )
    yield what, found, f"{race['target_s']:g} s at most"
    ratio = few["ms_per_image"] / theirs["ms_per_image"]
    found = f"{ratio:.2f} times the processor time of torchvision's {theirs['contender']}"
    yield f"The same with {few['images']:,}, kept for the next run", found, ""


def startup(race: Race) -> Iterator[Row]:
    for row in race["rows"]:
        found = (
            f"{row['cpu_s']:.2f} s of processor time, {row['clock_median_s']:.2f} s by the clock "
            f"at a load of {max(race['load']):.0f}"
        )
        yield f"`vitreous {row['command']}`", found, f"{race['target_s']:g} s at most"


def live(race: Race) -> Iterator[Row]:
    others = {
        "second": "another edit on top", "slide": "a slider", "image": "another image",
        "click": "a click on a patch", "stream": "a unit's stream", "undo": "undo",
    }  # fmt: skip
    load = f"{min(race['load']):.0f} to {max(race['load']):.0f}"
    for model in dict.fromkeys(row["model"] for row in race["rows"]):
        rows = {row["action"]: row for row in race["rows"] if row["model"] == model}
        edit = rows["edit"]
        found = (
            f"{edit['median_ms']:.0f} ms (median), {edit['p95_ms']:.0f} ms (95th percentile), "
            f"{edit['min_ms']:.0f} ms (best), by the clock at a load of {load} on two cores; "
            f"{edit['cpu_median_ms']:.0f} ms of processor time"
        )
        aims = race["targets_ms"].items()
        aim = next((f"{most:g} ms at most" for name, most in aims if model.startswith(name)), "")
        yield f"`vitreous live`, an edit of {model}", found, aim
        listed = ", ".join(
            f"{what} {rows[action]['median_ms']:.1f} ({rows[action]['p95_ms']:.0f})"
            for action, what in others.items()
        )
        yield "The same model, ms by the clock, median (95th percentile)", listed, ""


def convit(race: Race) -> Iterator[Row]:
    rows = {
        (row["case"], row["contender"]): row for row in race["rows"] if row["mode"] == "compiled"
    }
    for case in ("s@224", "b@224", "s@448", "ti/4@32"):
        if (case, "timm") in rows:
            ours, theirs = rows[case, "ours"], rows[case, "timm"]
            faster, memory = theirs["ms"] / ours["ms"], ours["MiB"] / theirs["MiB"]
            found = f"{faster:.2f} times as fast as timm's, {memory:.2f} of its memory"
            yield (
                f"A training step of ConViT-{case.replace('@', ' at ').capitalize()}, compiled",
                found,
                "",
            )


RACES: dict[str, Callable[[Race], Iterator[Row]]] = {
    "battery": battery, "observe": observe, "cka": cka, "hessian": hessian, "landscape": landscape,
    "linear_probe": linear_probe, "corruptions": corruptions, "train": train, "stack": stack,
    "world": world, "decode": decode, "startup": startup, "live": live,
    "convit": convit,
}  # fmt: skip
ONLY_GPU = {"convit"}
"""Whose CPU times say little: nobody trains it there."""


def newest() -> dict[tuple[str, str], Path]:
    """File of each race and device; names end with the date."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: path.stem[-10:]):
        found[path.stem.split("-")[0], "GPU" if "cuda" in path.stem else "CPU"] = path
    return found


def page() -> str:
    files, lines = newest(), [HEAD, "| what | measured | wanted | on |", "|---|---|---|---|"]
    for name, rows in RACES.items():
        for device in ("CPU", "GPU"):
            path = files.get((name, device))
            if path is None or (device == "CPU" and name in ONLY_GPU):
                continue
            for what, found, aim in rows(json.loads(path.read_text())):
                lines.append(f"| {what} (`{path.stem}`) | {found} | {aim or '–'} | {device} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {PAGE.stat().st_size} bytes")
