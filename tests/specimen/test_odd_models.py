"""Models that are wrapped, converted or strange: they open, or an error says in one sentence what
to open instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import vitreous
from specimen.toys import HEADS, WIDTH, Mlp, Patches, Transformer, pictures, settled
from vitreous.errors import VitreousError


def network() -> nn.Module:
    layers = [
        nn.Conv2d(3, WIDTH, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(WIDTH, 5),
    ]
    return nn.Sequential(*layers).eval()


class Returns(nn.Module):
    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.conv, self.answer = nn.Conv2d(3, WIDTH, 4, 4), answer

    def forward(self, images: Tensor) -> Any:
        return self.answer(self.conv(images))


NOTHING: dict[str, Callable[[], nn.Module]] = {
    "None": lambda: Returns(lambda x: None),
    "str": lambda: Returns(lambda x: "a cat"),
    "int": lambda: Returns(lambda x: 3),
    "empty": lambda: Returns(lambda x: ()),
    "constant": lambda: Returns(lambda x: torch.zeros(2)),
    "identity": nn.Identity,
}


@pytest.mark.parametrize("name", NOTHING)
def test_models_that_compute_nothing(name: str) -> None:
    with pytest.raises(VitreousError, match="computes nothing from its images"):
        vitreous.open(NOTHING[name](), image=16)


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: {"a": [x, {"b": 2 * x}]},
        lambda x: [x, x],
        lambda x: (x, None),
        lambda x: (x, 3, "name"),
    ],
    ids=["nested", "list", "None beside", "constants beside"],
)
def test_outputs_of_any_shape(answer: Callable[[Tensor], Any]) -> None:
    model = Returns(answer)
    found = vitreous.open(model, image=16)(pictures())
    assert repr(found) == repr(model(pictures()))


def quantised() -> nn.Module:
    """As `torch.ao.quantization.convert` leaves a model, which is deprecated and warns."""
    model = network()
    model[0] = torch.ao.nn.quantized.Conv2d(3, WIDTH, 3)  # type: ignore[operator]
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (quantised, "'0' is quantised"),
        (lambda: nn.Sequential(nn.LazyConv2d(WIDTH, 3), nn.ReLU()), "has no shape yet"),
    ],
)
def test_models_that_cannot_be_opened(build: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(VitreousError, match=words):
        vitreous.open(build(), image=16)


@pytest.mark.filterwarnings("ignore")
def test_torchscript() -> None:
    for model in (torch.jit.script(network()), torch.jit.trace(network(), pictures())):
        with pytest.raises(VitreousError, match="is TorchScript"):
            vitreous.open(model, image=16)


def twice(model: nn.Module) -> Any:
    return torch.compile(nn.DataParallel(model))


@pytest.mark.parametrize(
    "wrap", [torch.compile, nn.DataParallel, torch.optim.swa_utils.AveragedModel, twice]
)
def test_wrapped_models_are_unwrapped(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = settled(
        Transformer(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)))
    )
    specimen = vitreous.open(wrap(model), image=16)
    assert [u.name for u in specimen.units] == [
        u.name for u in vitreous.open(model, image=16).units
    ]
    assert specimen.anatomy.model == "Transformer"


@pytest.mark.parametrize("size", [213, 225])
def test_a_map_as_wide_as_the_exported_batch_size(size: int) -> None:
    model = settled(
        nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(211), nn.Flatten(), nn.LazyLinear(5)
        ),
        size,
    )
    specimen = vitreous.open(model, image=size)
    images = pictures(3, size)
    assert torch.allclose(specimen(images), model(images), atol=1e-5)


class Flexible(nn.Module):
    """FlexAttention with a bias, a mask, both or neither."""

    def __init__(self, biased: bool, masked: bool) -> None:
        super().__init__()
        self.stem, self.qkv, self.head = Patches(), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 5)
        self.bias = nn.Parameter(torch.randn(HEADS, 16, 16)) if biased else None
        mask = (
            create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device="cpu")
            if masked
            else None
        )
        self.mask = mask

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        query, key, value = (
            x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in self.qkv(tokens).chunk(3, -1)
        )
        bias = self.bias
        modify = None if bias is None else lambda score, b, h, q, k: score + bias[h, q, k]
        found = flex_attention(query, key, value, score_mod=modify, block_mask=self.mask)
        return self.head((tokens + found.transpose(1, 2).flatten(2)).mean(1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("biased", "masked"), [(False, False), (True, True)])
def test_flex_attention_opens_and_shows_its_probabilities(biased: bool, masked: bool) -> None:
    model = Flexible(biased, masked).eval()
    specimen = vitreous.open(model, image=16)
    with torch.no_grad():
        assert torch.allclose(specimen(pictures()), model(pictures()), atol=1e-5)
    (unit,) = [u for u in specimen.units if u.kind == "attention"]
    seen = specimen.observe(pictures(), ("attention",))[unit.name].attention
    assert seen is not None
    assert torch.allclose(seen.values.sum(-1), torch.ones(1), atol=1e-5)
    assert bool((seen.values[..., 0, 1:] == 0).all()) == masked


class Adaptive(nn.Module):
    """As many tokens as each image has different values: a size that depends on the images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.mlp, self.head = Patches(), Mlp(), nn.Linear(WIDTH, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images)
        kept = [torch.unique(each.argmax(-1)) for each in tokens]
        indices = nn.utils.rnn.pad_sequence(kept, batch_first=True)
        chosen = torch.take_along_dim(tokens, indices[..., None], 1)
        return self.head(self.mlp(chosen).mean(1))


def test_sizes_that_depend_on_images_end_in_an_error_soon() -> None:
    with pytest.raises(VitreousError, match=r"depends on the values in the images.*units="):
        vitreous.open(Adaptive().eval(), image=16)


Question = Callable[[Any, Tensor], Tensor]


class Asks(nn.Module):
    """A network that asks for the value of a tensor before it goes on."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.stem, self.mlp, self.head = Patches(), Mlp(), nn.Linear(WIDTH, 5)
        self.switch: Tensor
        self.register_buffer("switch", torch.ones(3))
        self.question = question

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.question(self, self.stem(images)).mean(1))


def written(model: Any, tokens: Tensor) -> Tensor:
    mask = torch.ones(tokens.shape[:2]).bool()
    places = torch.zeros(tokens.shape[:2], dtype=torch.long)
    places[mask] = (torch.arange(tokens.shape[1]) % 3).expand(tokens.shape[:2])[mask]
    return model.mlp(tokens) + model.switch[places][..., None]


OF_NO_IMAGE: dict[str, Question] = {
    "a buffer": lambda model, x: model.mlp(x) if model.switch[1] > 0 else x,
    "a mask of ones": lambda model, x: model.mlp(x) if torch.ones(x.shape[:2]).bool().all() else x,
    "a weight": lambda model, x: (
        x / model.head.weight.abs().max().item() if model.head.bias.norm() > 0 else x
    ),
    "a place": lambda model, x: x[:, : int(model.switch.sum())],
    "written through a mask": written,
    "how many there are": lambda model, x: model.mlp(x)[:, model.switch.nonzero()[:, 0]],
}


@pytest.mark.parametrize("name", OF_NO_IMAGE)
def test_branches_on_constants_are_resolved_at_export(name: str) -> None:
    model = Asks(OF_NO_IMAGE[name]).eval()
    specimen = vitreous.open(model, image=16)
    images = torch.cat([pictures(), -pictures(), torch.zeros(1, 3, 16, 16)])
    with torch.no_grad():
        torch.testing.assert_close(specimen(images), model(images))


OF_IMAGES_OR_CHANCE: dict[str, Question] = {
    "the images": lambda model, x: model.mlp(x) if x.sum() > 0 else x,
    "the images and a buffer": lambda model, x: (
        model.mlp(x) if (x.sum() * 0 + model.switch[0]) > 0 else x
    ),
    "chance": lambda model, x: model.mlp(x) if torch.rand(()) > 0.5 else x,
    "chance in place": lambda model, x: model.mlp(x) if torch.empty(()).uniform_() > 0.5 else x,
    "chance from a weight": lambda model, x: (
        model.mlp(x) if torch.bernoulli(model.switch * 0.5).sum() > 1 else x
    ),
    "which are positive": lambda model, x: x.flatten(1)[x.flatten(1) > 0].sum() + model.mlp(x),
}


@pytest.mark.parametrize("name", OF_IMAGES_OR_CHANCE)
def test_branches_on_images_or_random_numbers_are_refused(name: str) -> None:
    words = (
        r"(a branch|number of tokens).* depends on the values in the images, or on chance.*units="
    )
    with pytest.raises(VitreousError, match=words):
        vitreous.open(Asks(OF_IMAGES_OR_CHANCE[name]).eval(), image=16)


def test_a_random_number_of_tokens_is_named_in_the_error() -> None:
    """As masked autoencoders do: the number is the same each time, but only chance could tell."""

    def masked(model: Any, tokens: Tensor) -> Tensor:
        count, width = tokens.shape[1:]
        hidden = torch.rand(tokens.shape[:2]).argsort(1) < count // 2
        return model.mlp(tokens[hidden].view(len(tokens), -1, width))

    with pytest.raises(VitreousError, match=r"number of tokens .* or on chance.*units="):
        vitreous.open(Asks(masked).eval(), image=16)


def test_an_empty_slice_can_be_read() -> None:
    class Matting(nn.Module):
        """Three of two channels are the colours, and the rest is the opacity."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.conv, self.head = (
                nn.Conv2d(3, 8, 4, 4),
                nn.Conv2d(8, 8, 3, padding=1),
                nn.Conv2d(8, 2, 1),
            )

        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            stream = self.stem(images)
            both = self.head(stream + self.conv(stream).relu())
            return both[:, :3], nn.functional.relu(both[:, 3:])

    model = Matting().eval()
    specimen = vitreous.open(model, image=16)
    with torch.no_grad():
        torch.testing.assert_close(specimen(pictures()), model(pictures()))


@pytest.mark.parametrize(
    "loop",
    [
        lambda model, x: torch.stack([model.mlp(image) for image in x]),
        lambda model, x: torch.stack([model.mlp(x[i]) for i in range(len(x))]),
        lambda model, x: model.mlp(torch.cat(list(x.unbind(0))).unsqueeze(0)),
    ],
    ids=["iterating", "indexing", "packed"],
)
def test_a_loop_over_the_images_is_named(loop: Question) -> None:
    with pytest.raises(VitreousError, match=r"one after the other[^(]*units="):
        vitreous.open(Asks(loop).eval(), image=16)


def test_flex_attention_called_by_a_helper_of_another_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helper = ModuleType("somebodys_helper")
    monkeypatch.setitem(sys.modules, helper.__name__, helper)
    exec(
        "from torch.nn.attention.flex_attention import flex_attention\n"
        "def attend(query):\n    return flex_attention(query, query, query)\n",
        vars(helper),
    )

    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.mix, self.head = (
                nn.Conv2d(3, 16, 4, 4),
                nn.Linear(16, 16),
                nn.Linear(16, 5),
            )

        def forward(self, images: Tensor) -> Tensor:
            tokens = self.stem(images).flatten(2).transpose(1, 2)
            return self.head((tokens + helper.attend(self.mix(tokens)[:, None])[:, 0]).mean(1))

    specimen = vitreous.open(Asks().eval(), image=16)
    assert [unit.kind for unit in specimen.units] == ["stem", "attention", "head"]
    assert vars(helper)["flex_attention"] is flex_attention


def test_an_operation_without_a_rule_only_makes_positions_unknown() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.weight, self.head = (
                nn.Conv2d(3, 16, 4, 4),
                nn.Parameter(torch.randn(16)),
                nn.Linear(16, 5),
            )

        def forward(self, images: Tensor) -> Tensor:
            tokens = self.stem(images).flatten(2).transpose(1, 2)
            scores = nn.functional.linear(
                tokens, self.weight
            )  # a vector of weights: one dimension less
            return self.head((tokens * scores.softmax(1)[..., None]).sum(1))

    model, images = Scores().eval(), pictures()
    torch.testing.assert_close(vitreous.open(model, image=images.shape[-1])(images), model(images))
