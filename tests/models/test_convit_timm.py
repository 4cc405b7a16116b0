"""ConViT against timm's: the same numbers from the same weights, in less memory."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from models.weights import shaken
from vitreous.models import BadModel, build
from vitreous.models.convit import ConViT, from_timm, to_timm

TIMM_NANO: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 4,
    "num_classes": 10,
    "embed_dim": 8,
    "local_up_to_layer": 2,
}


class Largest(TorchDispatchMode):
    """Remembers the largest tensor any operation made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor):
                self.elements = max(self.elements, each.numel())
        return out


@pytest.mark.parametrize("name", ["convit_tiny", "convit_small"])
def test_equals_timm_at_224(name: str) -> None:
    theirs = shaken(timm.create_model(name), 0.02).eval()
    ours = from_timm(theirs)
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-5)
        torch.testing.assert_close(
            ours.forward_features(images), theirs.forward_features(images), rtol=0, atol=2e-5
        )


@pytest.mark.parametrize("extra", [{}, {"qkv_bias": True, "use_pos_embed": False}])
def test_gradients_equal_timm_and_weights_return_unchanged(extra: dict[str, Any]) -> None:
    theirs = shaken(timm.create_model("convit_small", **TIMM_NANO, num_heads=9, depth=4, **extra))
    ours = from_timm(theirs)
    images = torch.randn(3, 3, 32, 32)
    for model in (ours, theirs):
        model(images).square().sum().backward()
    wanted = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        if not name.endswith("pos_proj.bias"):  # zero but for rounding, on both sides
            torch.testing.assert_close(
                parameter.grad, wanted[name].grad, rtol=1e-3, atol=1e-4, msg=name
            )
    back = to_timm(ours).state_dict()
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in back.items())


def test_timm_refuses_what_it_cannot_express() -> None:
    ours = build("convit_ti/4", image=(32, 16), depth=2, gpsa=1, kind="psa", pool="gap")
    assert isinstance(ours, ConViT)
    with pytest.raises(
        BadModel,
        match=r"no kind='psa'; it adds a class token after .*; its grid is square, not 8x4",
    ):
        to_timm(ours)
    with pytest.raises(BadModel, match="global_pool='avg'"):
        from_timm(timm.create_model("convit_tiny", depth=2, local_up_to_layer=1, global_pool="avg"))


def test_nothing_of_batch_times_heads_times_n_squared_is_ever_made() -> None:
    theirs = timm.create_model("convit_small", **TIMM_NANO, num_heads=4, depth=3)
    batch, whole = 6, 6 * 4 * 64 * 64
    made = {}
    for name, model in (("ours", from_timm(theirs)), ("timm", theirs)):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), Largest() as largest:  # type: ignore[no-untyped-call]
            model(torch.randn(batch, 3, 32, 32)).sum().backward()
        made[name] = largest.elements
    assert made["ours"] < whole <= made["timm"]
