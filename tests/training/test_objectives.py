"""Losses against their definitions in float64, and what is not allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.errors import VitreousError
from vitreous.models import build
from vitreous.training.objectives import Classify, Distil, MaskedPatches, Objective, objective

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


class Says(nn.Module):
    """A model with a fixed answer, and a weight, so that it can be trained."""

    def __init__(self, answer: Tensor | tuple[Tensor, Tensor], classes: int = 4) -> None:
        super().__init__()
        self.answer, self.num_classes = answer, classes
        self.weight = nn.Parameter(torch.ones(()))
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Any:
        self.norm(images)
        answer = self.answer
        return (
            tuple(self.weight * a for a in answer)
            if isinstance(answer, tuple)
            else self.weight * answer
        )


def entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-Σ t log p by the definition."""
    p = logits.double().exp() / logits.double().exp().sum(-1, keepdim=True)
    return -(targets.double() * p.log()).sum(-1).mean()


OWN, SECOND, TEACHER = (
    torch.randn(5, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)
)
SOFT = torch.rand(5, 4, generator=torch.Generator().manual_seed(9)).softmax(-1)
IMAGES = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(4))


def test_classify() -> None:
    loss = Classify(Says(OWN))(IMAGES, SOFT)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(float(entropy(OWN, SOFT)), rel=1e-6)


def test_the_loss_is_float32_for_any_output() -> None:
    loss = Classify(Says(OWN.bfloat16()))(IMAGES, SOFT)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(float(entropy(OWN.bfloat16(), SOFT)), rel=1e-6)


@pytest.mark.parametrize("answer", [OWN, (OWN, SECOND)], ids=["one head", "two heads"])
@pytest.mark.parametrize("hard", [True, False])
def test_distillation(answer: Tensor | tuple[Tensor, Tensor], hard: bool) -> None:
    second = SECOND if isinstance(answer, tuple) else OWN
    loss = Distil(Says(answer), Says(TEACHER), hard=hard, tau=3.0, taught=0.3)(IMAGES, SOFT)
    if hard:
        lesson = entropy(second, torch.eye(4)[TEACHER.argmax(-1)])
    else:
        p, q = (logits.double().div(3).softmax(-1) for logits in (TEACHER, second))
        lesson = 9 * (p * (p / q).log()).sum(-1).mean()
    assert loss.item() == pytest.approx(float(0.7 * entropy(OWN, SOFT) + 0.3 * lesson), rel=1e-6)


def test_the_teacher_stays_aside() -> None:
    student, teacher = Says(OWN), Says(TEACHER)
    distil = Distil(student, teacher, hard=False, tau=1.0, taught=0.5)
    distil.train()
    aside = distil.teacher[0]
    before = teacher.get_buffer("norm.running_mean").clone()
    distil(IMAGES, SOFT).backward()
    assert not aside.training
    assert student.training
    for each in (teacher, aside):
        assert torch.equal(before, each.get_buffer("norm.running_mean"))
        assert each.get_parameter("weight").grad is None
    assert student.weight.grad is not None
    assert list(distil.state_dict()) == [f"model.{name}" for name in student.state_dict()]
    assert len(list(distil.parameters())) == len(list(student.parameters()))
    distil.to(torch.float64)
    assert aside.get_parameter("weight").dtype == torch.float64
    assert (teacher.training, teacher.weight.requires_grad) == (True, True)
    assert teacher.weight.dtype == torch.float32


def test_a_distilled_model_of_ours_uses_both_heads() -> None:
    model = build("deit_ti", image=32, classes=4, depth=1, distilled=True)
    recipe = Recipe(objective="distil_hard")
    distil = objective(recipe, model, teacher=Says(TEACHER), mean=MEAN, std=STD).train()
    images = torch.randn(5, 3, 32, 32)
    loss = distil(images, SOFT)
    own, second = model(images)
    right = (entropy(own, SOFT) + entropy(second, torch.eye(4)[TEACHER.argmax(-1)])) / 2
    assert loss.item() == pytest.approx(right.item(), rel=1e-5)
    assert model.eval()(images).shape == (5, 4)


@pytest.mark.parametrize(
    ("recipe", "model", "teacher", "sentence"),
    [
        (
            Recipe(objective="distil_hard"),
            Says(OWN),
            None,
            "'custom' learns from a teacher and none was given",
        ),
        (
            Recipe(),
            Says(OWN),
            Says(OWN),
            "A teacher was given and the recipe 'custom' has objective 'classify'",
        ),
        (
            Recipe(objective="distil_soft"),
            Says(OWN),
            Says(OWN, 5),
            "The teacher knows 5 classes and the model 4",
        ),
        (
            Recipe(objective="masked"),
            Says(OWN),
            None,
            "for our ViT with stem='patch', not for Says",
        ),
    ],
)
def test_what_does_not_fit(
    recipe: Recipe, model: nn.Module, teacher: nn.Module | None, sentence: str
) -> None:
    with pytest.raises(VitreousError, match=sentence):
        objective(recipe, model, teacher=teacher, mean=MEAN, std=STD)


def test_a_teacher_without_a_number_of_classes_is_checked_by_its_output() -> None:
    teacher = Says(torch.randn(5, 7))
    del teacher.num_classes
    with pytest.raises(VitreousError, match=r"The teacher answers \(5, 7\) and the model \(5, 4\)"):
        Distil(Says(OWN), teacher, hard=True, tau=1.0, taught=0.5)(IMAGES, SOFT)


def masked(target: Any, patch: int = 4, share: float = 0.5, **options: Any) -> MaskedPatches:
    model = build(f"vit_ti/{patch}", image=(16, 24), classes=10, depth=2, **options)
    return MaskedPatches(model, target=target, share=share, mean=MEAN, std=STD)


def test_bad_masks() -> None:
    with pytest.raises(VitreousError, match="at least 4 pixels, not 2"):
        masked("patch_colours", patch=2)
    with pytest.raises(VitreousError, match=r"masked_share 0\.01 .* is none"):
        masked("colour", share=0.01)
    with pytest.raises(VitreousError, match="stem='patch'"):
        MaskedPatches(
            build("vit_ti/8", image=32, stem="r26"), target="colour", share=0.5, mean=MEAN, std=STD
        )


def pictures(count: int = 3) -> Tensor:
    """Images in [0, 1] as float64."""
    return torch.rand(
        count, 3, 16, 24, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )


def normalised(images: Tensor) -> Tensor:
    return ((images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)).float()


@pytest.mark.parametrize(("target", "patch"), [("colour", 4), ("patch_colours", 8), ("pixels", 4)])
def test_targets_by_loops(target: Any, patch: int) -> None:
    images = pictures()
    truth = masked(target, patch).truth(normalised(images))
    at = 0
    for top in range(0, 16, patch):
        for left in range(0, 24, patch):
            cut = images[:, :, top : top + patch, left : left + patch]
            assert truth[:, at].tolist() == [pytest.approx(one) for one in expected(cut, target)]
            at += 1
    assert truth.shape[1] == at


def expected(cut: Tensor, target: str) -> list[Any]:
    """What should be predicted of each patch (n, 3, p, p)."""
    if target == "pixels":
        return normalised(cut).flatten(1).tolist()
    cells, side = (1, cut.shape[-1]) if target == "colour" else (4, cut.shape[-1] // 4)
    out = []
    for one in cut:
        squares = [
            one[:, r * side : (r + 1) * side, c * side : (c + 1) * side]
            for r in range(cells)
            for c in range(cells)
        ]
        levels = [
            [min(7, math.floor(8 * float(channel.mean()))) for channel in square]
            for square in squares
        ]
        out.append([red * 64 + green * 8 + blue for red, green, blue in levels])
    return out


def test_black_and_white_are_valid_colour_classes() -> None:
    whole = masked("colour")
    assert whole.truth(normalised(torch.ones(1, 3, 16, 24).double())).unique().tolist() == [511]
    assert whole.truth(normalised(torch.zeros(1, 3, 16, 24).double()) - 0.1).unique().tolist() == [
        0
    ]


def test_how_patches_are_corrupted() -> None:
    """Exactly half of 24; 80 % the token, 10 % another patch of the same image, 10 % themselves."""
    objective = masked("colour")
    count, total = 2000, 24
    tokens = (
        torch.arange(count * total).float().view(count, total, 1).expand(-1, -1, 192).contiguous()
    )
    with torch.no_grad():
        objective.mask_token.fill_(-1)
    after, chosen = objective.corrupt(tokens)
    assert chosen.shape == (count, 12)
    assert all(len(set(row)) == 12 for row in chosen.tolist())
    spared = torch.ones(count, total, dtype=torch.bool).scatter(1, chosen, False)
    assert torch.equal(after[spared], tokens[spared])
    before, now = tokens[~spared][:, 0], after[~spared][:, 0]
    masks, same = now == -1, now == before
    other = ~masks & ~same
    shares = [float(kind.double().mean()) for kind in (masks, other, same)]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=5 * math.sqrt(0.16 / (12 * count)))
    assert torch.equal(now[other] // total, before[other] // total)
    places = chosen.flatten().bincount(minlength=total) / (12 * count)
    torch.testing.assert_close(places, torch.full((total,), 1 / total), atol=0.003, rtol=0)


def test_another_patch_is_never_the_same() -> None:
    """Of two patches the other one is the only other."""
    objective = masked("colour")
    objective.count = 1
    tokens = torch.tensor([1.0, 2.0])[:, None].expand(4000, 2, 192)
    after, chosen = objective.corrupt(tokens)
    now, before = (x.gather(1, chosen[..., None])[:, 0, 0] for x in (after, tokens))
    assert (now == before).double().mean().item() == pytest.approx(0.1, abs=0.025)
    assert (now == 3 - before).double().mean().item() == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize(
    "options",
    [{}, {"pool": "gap"}, {"distilled": True}, {"pos": "2d", "inject": "every"}, {"pos": "none"}],
)
def test_masked_patches_use_the_models_own_blocks(options: dict[str, Any]) -> None:
    """With a prediction that reads the tokens as they are and nothing corrupted, what arrives is
    `forward_features`."""
    objective = masked("pixels", **options)
    model, images = objective.model, normalised(pictures())
    everything = torch.arange(24).expand(3, -1)
    objective.corrupt = lambda tokens: (tokens, everything)  # type: ignore[method-assign]
    kept = Keep()
    objective.predict = kept  # type: ignore[assignment]
    objective.truth = lambda images: torch.zeros(3, 24, 192)  # type: ignore[method-assign]
    objective(images, SOFT)
    features: Any = model.get_submodule("").forward_features(images)  # type: ignore[operator]
    assert torch.equal(kept.seen, features[:, -24:])


class Keep(nn.Module):
    """Remembers what it was given."""

    seen: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return x


@pytest.mark.parametrize("target", ["colour", "patch_colours", "pixels"])
def test_the_masked_loss_equals_a_loop(target: Any) -> None:
    """From the answers at the corrupted places only."""
    objective = masked(target, patch=8)
    images = normalised(pictures())
    kept = Keep()
    objective.predict = nn.Sequential(objective.predict, kept)  # type: ignore[assignment]
    torch.manual_seed(2)
    loss = objective(images, SOFT)
    torch.manual_seed(2)
    _, chosen = objective.corrupt(torch.zeros(3, 6, 192))
    truth, terms = objective.truth(images), []
    for n in range(3):
        for k, place in enumerate(chosen[n].tolist()):
            answer, right = kept.seen[n, k].detach().double(), truth[n, place]
            if target == "pixels":
                terms.append(float((answer - right).square().mean()))
            else:
                rows = answer.view(-1, 512).log_softmax(-1)
                terms.append(
                    -sum(float(row[c]) for row, c in zip(rows, right.tolist(), strict=True))
                    / len(right)
                )
    assert len(terms) == 9
    assert loss.item() == pytest.approx(sum(terms) / 9, rel=1e-5)


def test_every_trained_parameter_gets_a_gradient() -> None:
    """What takes no part is frozen: a process that waited for its gradient would wait for ever."""
    for options in (
        {},
        {"distilled": True},
        {"head": "tanh"},
        {"pool": "gap", "final_norm": "pooled"},
    ):
        objective = masked("colour", **options)
        objective(normalised(pictures()), SOFT).backward()
        trained = {name for name, p in objective.named_parameters() if p.requires_grad}
        assert trained == {name for name, p in objective.named_parameters() if p.grad is not None}
        assert {"mask_token", "predict.weight", "model.patch_embed.proj.weight"} <= trained


def test_training_lowers_the_masked_loss() -> None:
    """Uniform pictures: what is hidden can be read off the rest, so the loss falls far below log
    512."""
    objective = masked("colour", init="timm")
    moving = torch.optim.AdamW(objective.parameters(), lr=2e-3)
    palette = torch.tensor([[0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9]]).double()
    images = normalised(palette[:, :, None, None].expand(-1, -1, 16, 24)).repeat(4, 1, 1, 1)
    losses = []
    for _ in range(25):
        moving.zero_grad()
        losses.append(objective(images, SOFT))
        losses[-1].backward()
        moving.step()
    assert losses[0].item() > 5
    assert losses[-1].item() < 1


def student() -> Objective:
    model = build("deit_ti", image=(16, 32), classes=4, depth=1, distilled=True, init="timm")
    teacher = build("cnn_s", image=(16, 32), classes=4)
    return Distil(model, teacher, hard=True, tau=1.0, taught=0.5)


@pytest.mark.parametrize("kind", ["distil", "patch_colours", "pixels"])
def test_compiles_without_a_break(kind: str) -> None:
    wrapped, width = (student(), 32) if kind == "distil" else (masked(kind), 24)
    images = torch.randn(5, 3, 16, width)
    torch.manual_seed(0)
    plain = wrapped(images, SOFT)
    torch.manual_seed(0)
    compiled = torch.compile(wrapped, fullgraph=True, backend="eager")(images, SOFT)
    torch.testing.assert_close(plain, compiled)
