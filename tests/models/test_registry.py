"""Names, options and errors of the registry, and its place in timm's world."""

from __future__ import annotations

import json
from typing import Any

import pytest
import timm
import torch

import vitreous.models
from vitreous.errors import UnknownName, VitreousError
from vitreous.models import BadModel, names, options
from vitreous.models.registry import FAMILIES, ConfiguredModel, family, timm_name

build: Any = vitreous.models.build  # what a model is made of has no static type


def test_names_are_family_size_and_patch() -> None:
    listed = names()
    assert {
        "vit_ti/4",
        "vit_b/16",
        "vit_h/14",
        "deit_s+/16",
        "resnet_18",
        "swin_ti",
        "mixer_ti/4",
        "mlp_s",
    } <= set(listed)
    assert len(listed) == len(set(listed))
    assert listed == sorted(listed)
    assert names("resnet_*") == ["resnet_101", "resnet_152", "resnet_18", "resnet_34", "resnet_50"]


def test_a_patch_in_the_name_is_the_option_patch() -> None:
    with torch.device("meta"):
        named, given, usual = build("vit_ti/8"), build("vit_ti", patch=8), build("vit_ti")
    assert named.patch_embed.proj.kernel_size == given.patch_embed.proj.kernel_size == (8, 8)
    assert usual.patch_embed.proj.kernel_size == (16, 16)
    with torch.device("meta"):
        assert build("vit_ti/7", image=28).patch_embed.proj.kernel_size == (7, 7), (
            "not listed, but built"
        )


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("vit_tiny", "vit_ti"), ("restnet_50", "resnet_50"), ("vit_ti/x", "vit_ti/4")],
)
def test_unknown_names_get_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as error:
        build(name)
    assert nearest in str(error.value)
    assert isinstance(error.value, VitreousError)


def test_all_wrong_options_are_in_one_message() -> None:
    with pytest.raises(BadModel) as error:
        build(
            "vit_ti/4", poll="gap", pos="3d", classes="ten", depth=2.5, skipless=(1, "b"), patch=8
        )
    said = str(error.value)
    assert said.startswith("vit_ti/4 cannot be built: ")
    assert said.endswith(".")
    assert "\n" not in said
    assert (
        "there is no option 'poll' (did you mean pool or pos?), only image, classes, patch," in said
    )
    assert "pos='3d' is not one of 'none', '1d', '2d', 'sinusoidal', 'relative'" in said
    assert "classes='ten' is not a whole number" in said
    assert "depth=2.5 is not a whole number or None" in said
    assert "skipless=(1, 'b') is not a list of whole numbers" in said
    assert "the name says patch 4 and the option patch=8" in said


def test_true_is_not_a_number_and_one_is_not_a_bool() -> None:
    for wrong in ({"classes": True}, {"qkv_bias": 1}):
        with pytest.raises(BadModel, match="is not"):
            build("vit_ti/4", image=32, **wrong)


def test_a_patch_where_there_is_none() -> None:
    with pytest.raises(BadModel, match="resnet has no patches, so its name takes no '/4'"):
        build("resnet_18/4")


def test_config_survives_json() -> None:
    """Tuples come back as lists, and still build the same model."""
    model = build("vit_ti/8", image=(32, 16), classes=3, depth=2, skipless=(0,), pos="2d")
    config = json.loads(json.dumps(model.config))
    again = build(**config)
    assert again.config == model.config
    assert {k: v.shape for k, v in again.state_dict().items()} == {
        k: v.shape for k, v in model.state_dict().items()
    }


def test_options_are_listed_with_defaults() -> None:
    assert options("vit_b/16")["init"] == "jax"
    assert options("deit_b/16")["init"] == "timm"
    assert options("vit_b")["pos"] == "1d"


def test_a_family_must_have_image_classes_and_defaults() -> None:
    def maker(size: int, *, image: int, classes: int = 10) -> ConfiguredModel:
        raise NotImplementedError

    with pytest.raises(TypeError, match="a default for every option"):
        family("toy", {"s": 1})(maker)
    with pytest.raises(TypeError, match="registered twice"):
        family("vit", {"s": 1})(FAMILIES["mlp"].make)
    assert "toy" not in FAMILIES


def test_timm_builds_ours() -> None:
    model = timm.create_model(
        "vitreous_vit_ti_4", img_size=32, num_classes=10, global_pool="avg", drop_path_rate=0.1
    )
    assert model.config["name"] == "vit_ti/4"
    assert model.config["pool"] == "gap"
    assert model.config["drop_path"] == 0.1
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert timm.data.resolve_model_data_config(model)["input_size"] == (3, 32, 32)
    grey = timm.create_model("vitreous_resnet_18", img_size=32, in_chans=1, num_classes=2)
    assert grey(torch.zeros(2, 1, 32, 32)).shape == (2, 2)


def test_every_name_is_known_to_timm_once_and_none_of_timms_is_taken() -> None:
    ours = [timm_name(name) for name in names()]
    assert len(set(ours)) == len(ours)
    assert all(name.isidentifier() for name in ours)
    assert set(ours) == set(timm.list_models("vitreous_*"))
    assert all(
        not timm.models.model_entrypoint(n).__module__.startswith("vitreous")
        for n in timm.list_models("vit_*")
    )


def test_pretrained_weights_are_refused_with_a_sentence() -> None:
    with pytest.raises(BadModel, match="has no published weights"):
        timm.create_model("vitreous_vit_ti_4", pretrained=True)


def test_the_package_exports_the_registry() -> None:
    assert set(vitreous.models.__all__) == {
        "BadModel",
        "ConfiguredModel",
        "build",
        "names",
        "options",
    }
