"""The campaign at a size that tries its code in a few minutes."""

from __future__ import annotations

from dataclasses import replace

from vitreous.studies.scales import Scale


def toy(scale: Scale) -> Scale:
    """The same at a size for a few minutes of one core."""
    short = {"epochs": 5, "warmup": 1, "batch": 16, "test_every": 2}
    builds = {
        name: {
            size: replace(build, recipe={**build.recipe, **short} if build.recipe else {})
            for size, build in sizes.items()
        }
        for name, sizes in scale.builds.items()
    }
    for name in ("vit", "mixer"):
        build = builds[name][""]
        builds[name] = {"": replace(build, options={**build.options, "depth": 2})}
    return replace(
        scale,
        builds=builds,
        last_units={"vit": "blocks.1.mlp", "resnet": "layer4.1"},
        recipe=scale.recipe.but(**short),
        images=replace(scale.images, size=512, test_size=64),
        image_counts=dict.fromkeys(("hessian", "landscape", "erf", "corruption", "adversarial"), 16)
        | dict.fromkeys(("occlusion", "linear_probe", "lesion", "band_noise"), 32),
        measurement_options={
            **scale.measurement_options,
            "landscape": {**scale.measurement_options["landscape"], "points": 3},
            "corruption": {"severities": (1,)},
            "linear_probe": {"shots": (2,)},
        },
    )
