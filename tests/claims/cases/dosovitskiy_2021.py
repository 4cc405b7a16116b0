"""Evidence for and against what Dosovitskiy et al. say."""

from __future__ import annotations

from typing import Any

from claims.synthetic import Case, accuracy, item, result
from vitreous.claims.evidence import EvidenceItem

TENTH: dict[str, Any] = {"fraction": 0.1, "schedule": "samples"}
MASKED: dict[str, Any] = {"pretrained": "masked"}
LABELS: dict[str, Any] = {"pretrained": "labels"}
SHARES: tuple[dict[str, Any], ...] = (TENTH, {"fraction": 0.3, "schedule": "samples"}, {})


def trained(
    model: str, percent: float, seeds: int = 1, data: str = "cifar10", **facts: Any
) -> list[EvidenceItem]:
    """As accurate as that, give or take a little from training to training."""
    return [
        item(model, accuracy(percent + 0.05 * seed), seed=seed, data=data, **facts)
        for seed in range(seeds)
    ]


def positions(
    none: float, one: float, two: float, relative: float, data: str = "cifar10"
) -> list[EvidenceItem]:
    kinds = {"none": none, "1d": one, "2d": two, "relative": relative}
    return [
        each
        for kind, percent in kinds.items()
        for each in trained("vit", percent, 3, data, positions=None if kind == "1d" else kind)
    ]


def injections(one: tuple[float, ...], two: tuple[float, ...]) -> list[EvidenceItem]:
    return [
        each
        for kind, percents in ((None, one), ("2d", two))
        for way, percent in zip((None, "every", "shared"), percents, strict=True)
        for each in trained("vit", percent, 3, positions=kind, injection=way)
    ]


def grid(distance: float, line: float, **facts: Any) -> EvidenceItem:
    found = {"distance": distance, "row": line, "column": line}
    rows = [
        {"table": "positions", "index": name, "value": value, "low": value, "high": value}
        for name, value in found.items()
    ]
    return item("vit", result("position_similarity", rows), **facts)


def exact(**measures: float) -> EvidenceItem:
    rows = [
        {"measure": name, "value": value, "low": value, "high": value}
        for name, value in measures.items()
    ]
    return item("identities", result("identities", rows), data="")


def enlarged(
    interpolated: float, truncated: float, random: float, tuned: float, before: float
) -> list[EvidenceItem]:
    return [
        *trained("vit", interpolated, resolution=48),
        *trained("vit", truncated, resolution=48, embedding="truncated"),
        *trained("vit", random, resolution=48, embedding="random"),
        *trained("vit", tuned, resolution=48, tuned="whole"),
        *trained("vit", before),
    ]


def rates(token: tuple[float, ...], pooled: tuple[float, ...]) -> list[EvidenceItem]:
    return [
        each
        for pool, percents in ((None, token), ("gap", pooled))
        for rate, percent in zip((0.3, None, 3), percents, strict=True)
        for each in trained("vit", percent, 3, pool=pool, rate=rate)
    ]


def filters(share: float, frequency: float, overlap: float, **facts: Any) -> EvidenceItem:
    rows = [
        {
            "component": number,
            "frequency": frequency,
            "overlap": overlap,
            "value": share,
            "low": share,
            "high": share,
        }
        for number in range(1, 13)
    ]
    return item("vit", result("filters", rows), **facts)


def cost(model: str, percent: float, gflops: float, **facts: Any) -> EvidenceItem:
    return item(
        model, accuracy(percent), result("cost", [{"gflops": gflops, "value": 1000.0}]), **facts
    )


def hybrids(scarce: float, longer: float, larger: float) -> list[EvidenceItem]:
    """By how many points they are ahead."""
    short: dict[str, Any] = {"epochs": 0.25}
    return [
        *(cost("hybrid", 60 + scarce, 1.2, **short), cost("vit", 60, 1.0, **short)),
        *(*trained("hybrid", 70 + longer), *trained("vit", 70)),
        *(
            *trained("hybrid", 65 + larger, size="s", **short),
            *trained("vit", 65, size="s", **short),
        ),
    ]


def growing(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]], ahead: list[float]
) -> list[EvidenceItem]:
    """Two models at growing shares of the images, the first so many points ahead."""
    return [
        each
        for facts, base, points in zip(SHARES, (40, 55, 70), ahead, strict=True)
        for (model, more), percent in ((one, base + points), (other, base))
        for each in trained(model, percent, **facts, **more)
    ]


def attention(relative: list[list[float]], model: str = "vit") -> EvidenceItem:
    """Distances of the heads of every layer, relative to uniform attention."""
    rows = [
        {
            "unit": f"blocks.{layer}.attn",
            "kind": "attention",
            "depth": layer / len(relative),
            "head": head,
            "uniform": 16.0,
            "value": 16 * each,
            "low": 16 * each - 0.1,
            "high": 16 * each + 0.1,
            "mean": 16 * sum(heads) / len(heads),
            "mean_low": 16 * sum(heads) / len(heads) - 0.1,
            "mean_high": 16 * sum(heads) / len(heads) + 0.1,
        }
        for layer, heads in enumerate(relative)
        for head, each in enumerate(heads)
    ]
    return item(model, result("attention_distance", rows))


def rollout(times: float, checkpoint: str | None = None) -> EvidenceItem:
    """So many times as much on the object as chance has it, in 64 images, before and after."""
    rows = [
        {
            "unit": "blocks.3.attn",
            "image": image,
            "tile": True,
            "inside": 0.01 * times * (0.9 + 0.2 * (image % 2)),
            "box": 0.01,
            "value": 0.5,
        }
        for image in range(64)
    ]
    return item("vit", result("rollout", rows), data="SYN-B", checkpoint=checkpoint)


RISING = [[0.2, 0.95], [0.4, 0.9], [0.7, 0.95], [0.9, 1.0]]
FALLING = RISING[::-1]

CASES: dict[str, Case] = {
    "VIT-01": Case(positions(60, 65, 64.8, 64.9), positions(64.5, 65, 64.8, 64.9)),
    "VIT-02": Case(positions(60, 65, 64.8, 64.9), positions(60, 65, 63, 66)),
    "VIT-03": Case(
        injections((65, 65.1, 65.2), (64.9, 65, 65)), injections((65, 65.1, 67), (64.9, 65, 65))
    ),
    "VIT-04": Case([grid(-0.7, 0.2)], [grid(-0.7, -0.1)]),
    "VIT-05": Case(
        [exact(permutation_class=1e-6, permutation_mean=1e-6, permutation_positions=0.1)],
        [exact(permutation_class=1e-6, permutation_mean=1e-3, permutation_positions=0.1)],
    ),
    "VIT-06": Case(enlarged(70, 40, 20, 81, 80), enlarged(45, 40, 20, 81, 80)),
    "VIT-07": Case(rates((76, 80, 79), (79.5, 78, 70)), rates((76, 80, 79), (76, 80.5, 78))),
    "VIT-08": Case(
        [filters(0.1, 0.3, 0.8), filters(0.02, 0.76, 0.25, checkpoint="start")],
        [filters(0.1, 0.7, 0.8), filters(0.02, 0.76, 0.25, checkpoint="start")],
    ),
    "VIT-09": Case(hybrids(5, 2, 3), hybrids(5, 7, 3)),
    "VIT-10": Case(
        [cost("vit", 94, 0.3), cost("resnet", 93, 1.1)],
        [cost("vit", 90, 0.3), cost("resnet", 93, 1.1)],
    ),
    "VIT-11": Case(
        growing(("vit", {}), ("resnet", {}), [-20, -10, -5]),
        growing(("vit", {}), ("resnet", {}), [-5, -10, -7]),
    ),
    "VIT-12": Case(
        growing(("vit", {"size": "s"}), ("vit", {}), [-2, 0, 3]),
        growing(("vit", {"size": "s"}), ("vit", {}), [2, 4, 1]),
    ),
    "VIT-13": Case([attention(RISING)], [attention(FALLING)]),
    "VIT-14": Case([attention(RISING)], [attention([[0.2, 0.5], *RISING[1:]])]),
    "VIT-15": Case(
        [attention([[0.8, 0.9]], "hybrid"), attention(RISING)],
        [attention([[0.4, 0.7]], "hybrid"), attention(RISING)],
    ),
    "VIT-16": Case([rollout(3), rollout(1, "start")], [rollout(3), rollout(3.5, "start")]),
    "VIT-17": Case(
        [
            *trained("vit", 72, **MASKED),
            *trained("vit", 70, **TENTH),
            *trained("vit", 76, **LABELS),
        ],
        [
            *trained("vit", 72, **MASKED),
            *trained("vit", 70, **TENTH),
            *trained("vit", 71, **LABELS),
        ],
    ),
    "VIT-18": Case(
        [
            *trained("vit", 72, **MASKED),
            *trained("vit", 72.3, target="small", **MASKED),
            *trained("vit", 71, target="full", **MASKED),
        ],
        [
            *trained("vit", 72, **MASKED),
            *trained("vit", 72.3, target="small", **MASKED),
            *trained("vit", 74, target="full", **MASKED),
        ],
    ),
    "VIT-19": Case(
        [
            *trained("vit", 75, **MASKED),
            *trained("vit", 70, **TENTH),
            *trained("vit", 74.5, unlabelled=0.2, **MASKED),
            *trained("vit", 74.4, steps=0.1, **MASKED),
        ],
        [
            *trained("vit", 75, **MASKED),
            *trained("vit", 70, **TENTH),
            *trained("vit", 74.5, unlabelled=0.2, **MASKED),
            *trained("vit", 71, steps=0.1, **MASKED),
        ],
    ),
    "VIT-20": Case(
        [*trained("vit", 72, **MASKED), *trained("vit", 71.8, corrupted=0.15, **MASKED)],
        [*trained("vit", 72, **MASKED), *trained("vit", 73.5, corrupted=0.15, **MASKED)],
    ),
    "VIT-21": Case(
        [exact(patch_linear_operations=4.0, patch_attention_operations=16.0)],
        [exact(patch_linear_operations=65 / 17, patch_attention_operations=16.0)],
    ),
    "VIT-22": Case(
        [
            exact(zero_head_scores=0.0),
            *trained("vit", 90, **LABELS),
            *trained("vit", 90, head="last", **LABELS),
        ],
        [
            exact(zero_head_scores=0.0),
            *trained("vit", 90, **LABELS),
            *trained("vit", 91, head="last", **LABELS),
        ],
    ),
    "VIT-23": Case(
        [*trained("vit", 82, tuned="whole", resolution=48), *trained("vit", 80, tuned="whole")],
        [*trained("vit", 79, tuned="whole", resolution=48), *trained("vit", 80, tuned="whole")],
    ),
    "VIT-24": Case(
        [exact(dense_over_convolution_weights=116508.4)],
        [exact(dense_over_convolution_weights=9.0)],
    ),
}
