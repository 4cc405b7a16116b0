"""Products with Hessians of models of many kinds, against torch's own second derivatives of the
model itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from timm.models.convnext import ConvNeXt
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.curvature import second_attention, second_operations
from vitreous.measure.curvature.loss import Hessian, check_second_derivatives, weights
from vitreous.measure.curvature.second_derivatives import with_fast_second_derivatives
from vitreous.measure.curvature.second_operations import pop_deferred
from vitreous.measure.subject import logits


def hugging_face() -> nn.Module:
    import transformers

    size = {
        "image_size": 16,
        "patch_size": 8,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_labels": 4,
    }
    config: Any = transformers.ViTConfig(**size, num_attention_heads=2, intermediate_size=24)
    return transformers.ViTForImageClassification(config)


def residual() -> nn.Module:
    model = torchvision.models.ResNet(
        torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=4
    )
    model.layer2 = model.layer3 = model.layer4 = nn.Identity()
    model.fc = nn.Linear(64, 4)
    return model


class Odd(nn.Module):
    """Operations that are left to torch: a softmax over channels, a LayerNorm over several axes, a
    causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = (
            nn.Conv2d(3, 4, 8, 8),
            nn.LayerNorm((4, 4)),
            nn.Linear(4, 4),
        )
        self.unused = nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.norm(self.conv(images).flatten(2).softmax(1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(tokens, tokens, tokens, is_causal=True)
        found: Tensor = self.head(
            F.silu(mixed).mean(1) + F.tanh(tokens[:, 0]) + F.relu(tokens[:, 1])
        )
        return found


SMALL: dict[str, Callable[[], nn.Module]] = {
    "timm vit": lambda: VisionTransformer(
        16, 8, num_classes=4, embed_dim=12, depth=2, num_heads=2, mlp_ratio=2
    ),
    "timm swin": lambda: SwinTransformer(
        16, 2, 3, 4, embed_dim=6, depths=(2, 1), num_heads=(1, 2), window_size=4
    ),
    "timm convnext": lambda: ConvNeXt(num_classes=4, depths=(1, 1, 1, 1), dims=(4, 4, 6, 6)),
    "tv resnet": residual,
    "hf vit": hugging_face,
    "odd": Odd,
}
SIDE = {"timm convnext": 32}


def small(name: str) -> nn.Module:
    """In float64, no weight zero or one, and running statistics that are not trivial."""
    torch.manual_seed(1)
    model = SMALL[name]().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean, module.running_var = torch.randn(
                    2, module.num_features
                ).double()
                module.running_var = module.running_var.exp()
    return model


def reference(model: nn.Module, images: Tensor, labels: Tensor, vector: Tensor) -> Tensor:
    """By torch alone, from the model itself."""
    given = {
        name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()
    }
    with sdpa_kernel(SDPBackend.MATH):
        scores = logits(functional_call(model, given, (images,)))
        assert scores is not None
        loss = F.cross_entropy(scores, labels)
        values = list(given.values())
        gradients = torch.autograd.grad(loss, values, create_graph=True, materialize_grads=True)
        along = vector.split([value.numel() for value in values])
        total = sum((g * v.view_as(g)).sum() for g, v in zip(gradients, along, strict=True))
        found = torch.autograd.grad(torch.as_tensor(total), values, materialize_grads=True)
    return torch.cat([each.flatten() for each in found])


@pytest.mark.parametrize("name", SMALL)
def test_products_are_torchs_own(name: str) -> None:
    model = small(name)
    before = copy.deepcopy(model.state_dict())
    side = SIDE.get(name, 16)
    images, labels = torch.randn(2, 3, 3, side, side).double(), torch.tensor([[0, 3, 1], [2, 2, 0]])
    specimen = vitreous.open(model, image=side)
    given, sizes = (
        weights(specimen),
        {name: value.numel() for name, value in model.named_parameters()},
    )
    vector = {name: torch.randn(2, size).double() for name, size in sizes.items()}
    expected = [
        dict(
            zip(
                sizes,
                reference(model, images[i], labels[i], _flat(vector, i)).split(
                    list(sizes.values())
                ),
                strict=True,
            )
        )
        for i in range(2)
    ]
    along = torch.cat([vector[name] for name in given], 1)
    wanted = torch.stack([torch.cat([each[name] for name in given]) for each in expected])
    alone = Hessian(specimen, given, images[:1], labels[:1], 9)(along[:1])
    torch.testing.assert_close(alone, wanted[:1], rtol=1e-9, atol=1e-9)
    together = (
        1 if name == "timm convnext" else 2
    )  # vmap has no rule for some of its convolutions' copies
    hessian = Hessian(specimen, given, images[:together], labels[:together], 9)
    for _ in range(2):  # the graph is kept
        torch.testing.assert_close(
            hessian(along[:together]), wanted[:together], rtol=1e-9, atol=1e-9
        )
    assert [name for name in sizes if name not in given] == [
        f"unused.{w}" for w in ("weight", "bias")
    ] * (name == "odd")
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(
        parameter.grad is None and parameter.requires_grad for parameter in model.parameters()
    )


def _flat(vector: dict[str, Tensor], i: int) -> Tensor:
    return torch.cat([value[i] for value in vector.values()])


def test_the_model_computes_the_same_and_fused_attention_is_gone() -> None:
    specimen = vitreous.open(small("timm vit"), image=16)
    other, images = with_fast_second_derivatives(specimen), torch.randn(2, 3, 16, 16).double()
    torch.testing.assert_close(other(images), specimen(images))
    names = [str(node.target) for node in other.module.graph.nodes]
    assert not [name for name in names if "scaled_dot_product" in name]
    assert [
        str(n.target) for n in specimen.module.graph.nodes if "scaled_dot_product" in str(n.target)
    ]


def test_gradients_alone_are_the_models() -> None:
    specimen, images = (
        vitreous.open(small("timm vit"), image=16),
        torch.randn(2, 3, 16, 16).double(),
    )
    found = []
    for each in (specimen, with_fast_second_derivatives(specimen)):
        given = {
            name: value.detach().requires_grad_() for name, value in sorted(each.named_parameters())
        }
        loss = F.cross_entropy(functional_call(each, given, (images,)), torch.tensor([0, 3]))
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(given.values()))])
        )
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_an_interrupted_product_leaves_no_deferred_terms() -> None:
    specimen, images = (
        vitreous.open(small("timm vit"), image=16),
        torch.randn(1, 3, 3, 16, 16).double(),
    )
    hessian = Hessian(specimen, weights(specimen), images, torch.tensor([[0, 3, 1]]), 3)
    first, second = torch.randn(2, 1, sum(hessian.sizes)).double()
    expected = hessian(second)

    def stop(gradient: Tensor) -> None:
        raise KeyboardInterrupt

    broken = hessian.given["patch_embed.proj.weight"].register_hook(
        stop
    )  # the last on the way down
    with pytest.raises(KeyboardInterrupt):
        hessian(first)
    broken.remove()
    assert torch.equal(hessian(second), expected)


def test_what_has_no_graph_stays_as_it_is() -> None:
    specimen = vitreous.open(small("timm vit"), image=16, units=["blocks.0", "blocks.1"])
    assert with_fast_second_derivatives(specimen) is specimen


def shown(specimen: Any, batches: int = 1) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    torch.manual_seed(3)
    images = torch.randn(batches, 3, 3, 16, 16).double()
    return weights(specimen), images, torch.tensor([[0, 3, 1], [2, 2, 0]][:batches])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_check_accepts_every_family(name: str, dtype: torch.dtype) -> None:
    if name == "timm convnext":
        pytest.skip("takes images of 32 pixels")
    specimen = vitreous.open(small(name).to(dtype), image=16)
    given, images, targets = shown(specimen, batches=2)
    check_second_derivatives(specimen, given, images.to(dtype), targets)


def _without(name: str, number: int) -> Callable[[Any], tuple[Any, ...] | None]:
    """Forget one of the deferred terms of a function, as an autograd that runs in another order
    would."""

    def pop(ctx: Any) -> tuple[Any, ...] | None:
        deferred = pop_deferred(ctx)
        if deferred is None or type(ctx).__name__ != name:
            return deferred
        changed = list(deferred)
        changed[number] = torch.zeros_like(changed[number])
        return tuple(changed)

    return pop


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("PointwiseFunctionBackward", 1),
        ("LayerNormFunctionBackward", 2),
        ("LinearFunctionBackward", 0),
        ("AttentionFunctionBackward", 1),
        ("AttentionFunctionBackward", 4),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_broken_second_derivative_is_an_error(
    name: str, number: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    specimen = vitreous.open(small("timm vit").to(dtype), image=16)
    given, images, targets = shown(specimen)
    check_second_derivatives(specimen, given, images.to(dtype), targets)
    for module in (second_attention, second_operations):
        monkeypatch.setattr(module, "pop_deferred", _without(name, number))
    with pytest.raises(VitreousError, match="differ from torch's own by"):
        check_second_derivatives(specimen, given, images.to(dtype), targets)


def test_no_spectrum_and_no_eigenvectors_are_computed_from_broken_second_derivatives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small("timm vit").float()
    data = vitreous.data.Dataset(
        torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8),
        torch.arange(8) % 4,
        tuple("abcd"),
        "noise",
        "train",
    )
    monkeypatch.setattr(second_operations, "pop_deferred", _without("PointwiseFunctionBackward", 1))
    asked: list[dict[str, Any]] = [
        {"hessian": {"size": 4, "top": 1}},
        {"landscape": {"directions": "eigenvectors", "points": 3}},
    ]
    for analysis in asked:
        with pytest.raises(VitreousError, match="Second derivatives of VisionTransformer"):
            vitreous.analyse(model, data, analysis, image=16)
