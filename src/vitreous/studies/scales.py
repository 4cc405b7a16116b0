"""The scale of a study: its networks, their training, the number of images, and the measurements.

A claim names a ViT; the scale says which one. `sanity` is for two cores and generated images,
`small` for CIFAR-like images on one GPU; `reproduction` is the same with the papers' recipe, and
`paper` has the papers' networks as well. Within a scale all networks are trained alike, so that two
of them differ only in their facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vitreous.claims.book_sources import GIVEN, every_book
from vitreous.claims.evidence import Scale as Thresholds
from vitreous.claims.evidence import scale_for
from vitreous.claims.facts import MODELS
from vitreous.config import Augment, Recipe
from vitreous.errors import UnknownName, VitreousError
from vitreous.studies.training import Images
from vitreous.training.recipes import named
from vitreous.training.recipes.dosovitskiy_2021 import vit_finetune

TASKS = {
    "SYN-A": "world:syn-a:cues",
    "SYN-B": "world:syn-b:four",
    "SYN-C": "world:syn-c",
    "SYN-D": "world:syn-d",
    "SYN-E": "world:syn-e",
}
"""Names for `vitreous.data.load` of the tasks of small versions. The training images of SYN-A have
shapes and textures that agree, because a claim is about which of them decides when they disagree.
SYN-B has four motifs in faint noise: with eight in strong noise, transformers stay at chance for as
long as two cores can train them, and a network at chance is no evidence."""


@dataclass(frozen=True)
class Build:
    """A call of `vitreous.models.build`, without image and classes."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the scale's recipe; `name` starts from another one."""


@dataclass(frozen=True)
class Scale:
    """The networks, recipes, images and measurements of a study."""

    name: str
    builds: Mapping[str, Mapping[str, Build]]
    """By model, then by size: '' (standard), 's' or 'wide'."""
    recipe: Recipe
    images: Images
    """Their number and side; the name is the study's."""
    plain: Augment
    """The augmentation of trainings without augmentation (`augment=none`)."""
    finetune: Recipe
    sgd: Mapping[str, Any]
    """Changes to the recipe of trainings with SGD (`optimiser=sgd`)."""
    measurement_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of each probe and analysis, by name; for `lesion`, what to take out of each model."""
    image_counts: Mapping[str, int] = field(default_factory=dict)
    """Number of images of each probe and analysis (default: its own default)."""
    epoch_factors: Mapping[str, float] = field(default_factory=dict)
    """Factor by which trainings on some images are longer, by the name of the images."""
    last_units: Mapping[str, str] = field(default_factory=dict)
    """The last unit before the head, by model; `linear_probe` probes its positions one by one."""
    keep_epochs: bool = True
    """Whether to keep the weights of every epoch of networks whose trajectory a claim reads."""
    books: tuple[str, ...] = ()
    """Names of the books given with `--book`, which every worker has to read."""

    def build(self, model: str, size: str = "") -> Build:
        """The network of a model word and size; raises if the scale has none."""
        if model not in MODELS:
            raise UnknownName("model among the facts", model, MODELS)
        if model not in self.builds:
            raise VitreousError(
                f"{model!r} is no model that could be trained at scale {self.name!r}: "
                f"{MODELS[model]}."
            )
        if size not in self.builds[model]:
            known = ", ".join(repr(each) for each in self.builds[model] if each) or "its own only"
            raise VitreousError(
                f"At scale {self.name!r} there is no {model} of size {size!r}; there is {known}."
            )
        return self.builds[model][size]

    def thresholds(self, data: str, classes: int) -> Thresholds:
        """The thresholds by which claims are judged on `data` with this number of classes."""
        return "sanity" if self.name == "sanity" or data in TASKS else scale_for(data, classes)


LESIONS = {
    "resnet": ("convolutions",),
    "swin": ("units",),
    "convit": ("gates", "positions", "attention"),
    "deit": ("positions",),
}
"""The lesions that claims read, by model."""


def _sized(standard: Build, s: Build, wide: Build | None = None) -> dict[str, Build]:
    return {"": standard, "s": s} | ({} if wide is None else {"wide": wide})


def _tokens(depth: int, width: int, heads: int, **more: Any) -> Build:
    return Build("vit_nano", {"patch": 4, "depth": depth, "width": width, "heads": heads, **more})


LOCAL: dict[str, Any] = {"mixer": "window", "pool": "gap"}
SMALL_RESNET: dict[str, Any] = {"stem": "r26", "stem_width": 0.0625}
NANO_STAGES = {"stages": (2, 2, 4), "width": 8, "heads": (1, 2, 4), "head_dim": 8, "window": 2}
SANITY = Scale(
    name="sanity",
    builds={
        "resnet": _sized(
            Build("preresnet_nano", {"stages": (2, 2, 2), "width": 8}),
            Build("preresnet_nano", {"stages": (3, 3, 3), "width": 8}),
            Build("preresnet_nano", {"stages": (2, 2, 2), "width": 16}),
        ),
        "vit": _sized(_tokens(4, 48, 4), _tokens(4, 72, 6), _tokens(4, 96, 4)),
        "deit": _sized(
            Build("deit_ti", {"patch": 4, "depth": 4, "width": 48, "heads": 4}),
            Build("deit_ti", {"patch": 4, "depth": 4, "width": 72, "heads": 9}),
        ),
        "convit": _sized(
            Build("convit_nano", {"patch": 4, "depth": 4, "heads": 4, "head_dim": 12, "gpsa": 3}),
            Build("convit_nano", {"patch": 4, "depth": 4, "heads": 9, "head_dim": 8, "gpsa": 3}),
        ),
        "pit": {"": Build("pit_nano", {"patch": 4, "stride": 2})},
        "swin": {"": Build("swin_nano", {"patch": 2, "window": 2, "depths": (2, 2, 2, 2)})},
        "mixer": {"": Build("mixer_nano", {"patch": 4, "depth": 4})},
        "alternet": {"": Build("alternet_nano", NANO_STAGES)},
        "hybrid": _sized(_tokens(4, 48, 4, **SMALL_RESNET), _tokens(4, 72, 6, **SMALL_RESNET)),
        "window": {"": _tokens(4, 48, 4, **LOCAL, window=2)},
    },
    recipe=named("sanity"),
    images=Images("", size=2048, test_size=512, image=16),
    plain=Augment(crop="none", flip=0.0),
    finetune=vit_finetune(steps=128).but(
        name="sanity_finetune",
        batch=64,
        precision="fp32",
        test_every=8,
        augment=Augment(crop="none", flip=0.0),
    ),
    sgd={"optimiser": "sgd", "lr": 0.05, "weight_decay": 5e-4},
    measurement_options={
        "hessian": {"recipe": "sanity"},
        "landscape": {"recipe": "sanity", "points": 21, "stream": "augmented"},
        "corruption": {"severities": (1, 3, 5)},
        "linear_probe": {"shots": (10,)},
        "localisation": {"grid": 4},
        "rollout": {"images": tuple(range(256))},
        "occlusion": {"grids": (2, 4), "shares": (0.25, 0.5, 0.75)},
        "lesion": LESIONS,
    },
    image_counts={
        "hessian": 128,
        "landscape": 128,
        "erf": 16,
        "corruption": 256,
        "adversarial": 64,
        "occlusion": 256,
    },
    epoch_factors={
        TASKS["SYN-C"]: 2.5
    },  # a ViT that has to learn positions stays at chance for the first dozen epochs
    last_units={"vit": "blocks.3.mlp", "resnet": "stages.2.1.convs"},
)

STAGES = {"stages": (2, 3, 4, 5)}
"""Stages of AlterNet, with room for two attention blocks in each of the last two."""
MEASUREMENT_OPTIONS: dict[str, Mapping[str, Any]] = {
    "hessian": {"recipe": "fast"},
    "landscape": {"recipe": "fast", "points": 21, "stream": "augmented"},
    "corruption": {"severities": (1, 2, 3, 4, 5)},
    "linear_probe": {"shots": (10,)},
    "localisation": {"grid": 4},
    "rollout": {"images": tuple(range(256))},
    "occlusion": {"grids": (4, 8, 16)},
    "lesion": LESIONS,
}
IMAGE_COUNTS = {
    "hessian": 1600, "landscape": 2048, "erf": 64, "corruption": 10_000, "adversarial": 1024,
    "occlusion": 2048, "band_noise": 2048, "lesion": 10_000, "linear_probe": 10_000,
}  # fmt: skip


def _patched(name: str, patch: int = 4, **options: Any) -> Build:
    return Build(name, {"patch": patch, **options})


SMALL = Scale(
    name="small",
    builds={
        "resnet": _sized(Build("resnet_18"), Build("resnet_34")),
        "resnext": _sized(Build("resnext_50"), Build("resnext_101")),
        "vit": _sized(_patched("vit_ti"), _patched("vit_s"), _patched("vit_ti", width=384)),
        "deit": _sized(_patched("deit_ti", heads=4), _patched("deit_s", heads=9, width=432)),
        "convit": _sized(_patched("convit_ti"), _patched("convit_s")),
        "pit": _sized(_patched("pit_ti", stride=2), _patched("pit_xs", stride=2)),
        "swin": _sized(_patched("swin_ti", 2), _patched("swin_s", 2)),
        "twins": _sized(_patched("twins_s", 2), _patched("twins_b", 2)),
        "mixer": _sized(_patched("mixer_ti"), _patched("mixer_s")),
        "alternet": _sized(
            Build("alternet_18", STAGES), Build("alternet_34", {"stages": (3, 4, 6, 5)})
        ),
        "hybrid": _sized(
            _patched("vit_ti", stem="r26", stem_width=0.25),
            _patched("vit_s", stem="r26", stem_width=0.25),
        ),
        "window": _sized(_patched("vit_ti", **LOCAL), _patched("vit_s", **LOCAL)),
    },
    recipe=named("fast").but(epochs=60, test_every=5),
    images=Images("", image=32),
    plain=named("hdv_noaug").augment,
    finetune=vit_finetune(steps=1000).but(name="small_finetune", augment=Augment()),
    sgd={"optimiser": "sgd", "lr": 0.1, "weight_decay": 5e-4},
    measurement_options=MEASUREMENT_OPTIONS,
    image_counts=IMAGE_COUNTS | {"hessian": 512, "landscape": 1024, "corruption": 1000},
    last_units={"vit": "blocks.11.mlp", "resnet": "layer4.1"},
)

NO_BIAS: dict[str, Any] = {"qkv_bias": False}
"""As in the networks that Park and Kim released for CIFAR."""
PAPER = Scale(
    name="paper",
    builds={
        "resnet": _sized(Build("resnet_50"), Build("resnet_101")),
        "resnext": _sized(Build("resnext_50"), Build("resnext_101")),
        "vit": _sized(
            _patched("vit_ti", **NO_BIAS),
            _patched("vit_s", **NO_BIAS),
            _patched("vit_ti", width=384, **NO_BIAS),
        ),
        "deit": _sized(_patched("deit_ti", heads=4), _patched("deit_s", heads=9, width=432)),
        "convit": _sized(_patched("convit_ti"), _patched("convit_s")),
        "pit": _sized(_patched("pit_ti", 2, stride=1), _patched("pit_xs", 2, stride=1)),
        "swin": _sized(_patched("swin_ti", 1), _patched("swin_s", 1)),
        "twins": _sized(_patched("twins_s", 1), _patched("twins_b", 1)),
        "mixer": _sized(_patched("mixer_ti"), _patched("mixer_s")),
        "alternet": _sized(
            Build("alternet_50", {"stages": (3, 4, 6, 5)}),
            Build("alternet_101", {"stages": (3, 4, 23, 5)}),
        ),
        "hybrid": _sized(
            _patched("vit_ti", stem="r50", **NO_BIAS), _patched("vit_s", stem="r50", **NO_BIAS)
        ),
        "window": _sized(
            _patched("vit_ti", **LOCAL, **NO_BIAS), _patched("vit_s", **LOCAL, **NO_BIAS)
        ),
    },
    recipe=named("hdv_cifar"),
    images=Images("", image=32),
    plain=named("hdv_noaug").augment,
    finetune=vit_finetune().but(name="paper_finetune", augment=Augment()),
    sgd={"optimiser": "sgd", "lr": 0.1, "weight_decay": 5e-4},
    measurement_options=MEASUREMENT_OPTIONS
    | {
        "hessian": {"recipe": "hdv_cifar"},
        "landscape": {"recipe": "hdv_cifar", "points": 21, "stream": "augmented"},
    },
    image_counts=IMAGE_COUNTS,
    last_units={"vit": "blocks.11.mlp", "resnet": "layer4.2"},
)

LIKE_CONVIT = {"name": "convit", "batch": 256, "lr": 1e-3, "test_every": 5}
"""The recipe that d'Ascoli et al. train ConViT and DeiT with, at a batch for 50,000 images. Weight
decay spares the gates: in `hdv_cifar` it would open them without any learning."""


def _with_recipe(recipe: Mapping[str, Any], builds: Mapping[str, Build]) -> dict[str, Build]:
    return {size: replace(build, recipe=recipe) for size, build in builds.items()}


REPRODUCTION = replace(
    SMALL,
    name="reproduction",
    builds={
        **SMALL.builds,
        "swin": _sized(_patched("swin_ti", 2, window=2), _patched("swin_s", 2, window=2)),
        "convit": _with_recipe(LIKE_CONVIT, SMALL.builds["convit"]),
        "deit": _with_recipe(LIKE_CONVIT, SMALL.builds["deit"]),
    },
    recipe=named("hdv_cifar").but(test_every=5),
    measurement_options=PAPER.measurement_options,
    image_counts={**SMALL.image_counts, "hessian": 640, "corruption": 1000},
    keep_epochs=False,
)
"""The networks of `small` with Park and Kim's recipe as published (5 + 300 epochs at batch 96), and
ConViT and DeiT with that of d'Ascoli et al. Swin has smaller windows than in `small`: with windows
of 4 x 4 patches, 8 of its 12 blocks would see the whole image."""

SCALES = {scale.name: scale for scale in (SANITY, SMALL, PAPER, REPRODUCTION)}


def scale_named(name: str) -> Scale:
    """The scale of that name, with the networks of all books in use."""
    if name not in SCALES:
        raise UnknownName("scale", name, SCALES, f"Scales are {', '.join(SCALES)}.")
    return _add_networks(SCALES[name])


def _add_networks(scale: Scale) -> Scale:
    """The scale with the networks that the books in use define for their model words."""
    added: dict[str, Mapping[str, Build]] = {}
    for book in every_book():
        for model, new in book.extensions.networks.get(scale.name, {}).items():
            added[model] = {"": Build(new.network, new.options, new.recipe)}
    if not added and not GIVEN:
        return scale
    return replace(scale, builds={**scale.builds, **added}, books=tuple(GIVEN))
