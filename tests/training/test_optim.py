"""Schedules, weight decay, freezing, clipping and the running mean, each against something computed
another way."""

from __future__ import annotations

import math
from typing import Any

import pytest
import timm
import torch
import torchvision
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn

from vitreous import recipes
from vitreous.config import Recipe
from vitreous.errors import UnknownName, VitreousError
from vitreous.models import build
from vitreous.training.objectives import Classify
from vitreous.training.optim import average, clip_gradients, freeze, optimiser, schedule, undecayed


def torch_lrs(scheduler: torch.optim.lr_scheduler.LRScheduler, count: int) -> list[float]:
    """What torch's scheduler gives for `count` steps or epochs."""
    lrs = []
    for _ in range(count):
        lrs.append(float(scheduler.get_last_lr()[0]))
        scheduler.optimizer.step()
        scheduler.step()
    return lrs


def sgd(recipe: Recipe) -> torch.optim.SGD:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.lr)


@pytest.mark.parametrize("name", ["hdv_cifar", "hdv_noaug", "hdv_imagenet", "fast", "ablation"])
def test_park_and_kim_warm_up_by_step_and_anneal_by_epoch(name: str) -> None:
    recipe, each = recipes.named(name), 3
    plan = schedule(recipe, each)
    assert (plan.warmup_steps, plan.epochs) == (5 * each, 5 + recipe.epochs)
    assert plan.steps == plan.epochs * each
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(sgd(recipe), T_max=recipe.epochs)
    expected = [recipe.lr * i / 15 for i in range(15)]
    expected += [lr for lr in torch_lrs(annealing, recipe.epochs) for _ in range(each)]
    assert [plan.lr(i) for i in range(plan.steps)] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "warmup"), [("hdv_general", 1), ("smoothing", 1), ("hdv_imagenet_general", 0)]
)
def test_park_and_kim_in_steps(name: str, warmup: int) -> None:
    recipe, each = recipes.named(name), 4
    plan = schedule(recipe, each)
    steps = torch.optim.lr_scheduler.MultiStepLR(sgd(recipe), list(recipe.milestones), recipe.gamma)
    expected = [0.1 * i / 4 for i in range(each * warmup)]
    expected += [lr for lr in torch_lrs(steps, recipe.epochs) for _ in range(each)]
    assert [plan.lr(i) for i in range(plan.steps)] == pytest.approx(expected, rel=1e-9)


def timm_lrs(recipe: Recipe, steps: list[int], **options: Any) -> list[float]:
    scheduler = CosineLRScheduler(
        sgd(recipe), warmup_lr_init=recipe.warmup_from, lr_min=recipe.last_lr, **options
    )
    return [scheduler._get_lr(step)[0] for step in steps]


@pytest.mark.parametrize(
    "name", ["deit", "deit_plus", "convit", "convit_plus", "convit_frozen", "deit_distilled"]
)
def test_deit_is_timms_cosine(name: str) -> None:
    """Exactly, counted from the end of the warm-up; and close to the released one, which counts
    from the start."""
    recipe, each = recipes.named(name), 7
    plan = schedule(recipe, each)
    assert (plan.epochs, plan.steps) == (300, 2100)
    epochs = list(range(300))
    ours = [plan.lr(epoch * each) for epoch in epochs]
    exact = timm_lrs(recipe, epochs, t_initial=295, warmup_t=5, warmup_prefix=True)
    assert ours == pytest.approx(exact, rel=1e-9)
    released = timm_lrs(recipe, epochs, t_initial=300, warmup_t=5)
    assert max(abs(a - b) for a, b in zip(ours, released, strict=True)) < 0.016 * recipe.lr
    assert all(plan.lr(step) == plan.lr(step - step % each) for step in range(5 * each, plan.steps))
    assert plan.lr(17) == pytest.approx(1e-6 + (recipe.lr - 1e-6) * 17 / 35)


@pytest.mark.parametrize(
    "name", ["vit_pretrain", "vit_finetune", "vit_finetune_pets", "vit_finetune_vtab", "masked"]
)
def test_vit_cosine_by_step(name: str) -> None:
    recipe = recipes.named(name)
    plan = schedule(recipe, 312)
    total = recipe.steps or 300 * 312
    assert (plan.steps, plan.epochs) == (total, math.ceil(total / 312))
    warm = recipe.warmup_steps
    assert warm is not None
    asked = [0, 1, warm // 2, warm - 1, warm, warm + 1, (warm + total) // 2, total - 1]
    expected = timm_lrs(recipe, asked, t_initial=total - warm, warmup_t=warm, warmup_prefix=True)
    assert [plan.lr(step) for step in asked] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["vit_pretrain_in21k", "vit_pretrain_jft", "vit_gap"])
def test_vit_linear(name: str) -> None:
    recipe = recipes.named(name)
    plan = schedule(recipe, 3419)
    total = recipe.epochs * 3419
    for step in (0, 1, 5000, 9999, 10_000, 15_000, total - 1):
        assert plan.lr(step) == pytest.approx(
            recipe.lr * min(step / 1e4, (total - step) / (total - 1e4)), rel=1e-9
        )


def test_every_recipe_has_a_schedule() -> None:
    for name in recipes.names():
        plan = schedule(recipes.named(name), 5000)
        rates = [plan.lr(step) for step in range(0, plan.steps, max(1, plan.steps // 997))]
        assert max(rates) <= plan.recipe.lr * (1 + 1e-12)
        assert plan.lr(plan.warmup_steps) == pytest.approx(plan.recipe.lr)


def test_constant_and_cool_down_and_parts_of_epochs() -> None:
    recipe = Recipe(
        schedule="constant",
        epochs=4,
        warmup=0.5,
        warmup_from=1e-5,
        lr=1e-3,
        last_lr=1e-6,
        cooldown=2,
    )
    plan = schedule(recipe, 10)
    assert (plan.warmup_steps, plan.steps, plan.epochs) == (5, 60, 6)
    assert [plan.lr(i) for i in (0, 5, 39, 40, 59)] == pytest.approx([1e-5, 1e-3, 1e-3, 1e-6, 1e-6])
    short = schedule(recipe.but(steps=33, cooldown=0), 10)
    assert (short.steps, short.epochs) == (33, 4)
    extra = schedule(recipe.but(warmup_extra=True, cooldown=0), 10)
    assert (extra.steps, extra.epochs) == (45, 5)


def test_milestones_count_from_the_first_epoch_of_all_or_after_an_extra_warm_up() -> None:
    recipe = Recipe(schedule="step", milestones=(2, 3), gamma=0.5, lr=1.0, epochs=4, warmup=1.0)
    within, extra = schedule(recipe, 2), schedule(recipe.but(warmup_extra=True), 2)
    assert [within.lr(i) for i in range(within.steps)] == [0, 0.5, 1, 1, 0.5, 0.5, 0.25, 0.25]
    assert [extra.lr(i) for i in range(extra.steps)] == [0, 0.5, 1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_a_warm_up_that_does_not_fit() -> None:
    with pytest.raises(
        VitreousError, match="'vit_pretrain' takes 10000 steps and the whole training only 3600"
    ):
        schedule(recipes.named("vit_pretrain"), 12)


PLAIN = {"image": 16, "classes": 10}


def test_positions_and_tokens_are_not_decayed() -> None:
    vit = build("vit_ti/4", **PLAIN, depth=1, distilled=True)
    dense = [
        "patch_embed.proj",
        "blocks.0.attn.qkv",
        "blocks.0.attn.proj",
        "blocks.0.mlp.fc1",
        "blocks.0.mlp.fc2",
    ]
    names = dict(vit.named_parameters()).keys()
    assert names - undecayed(vit) == {f"{name}.weight" for name in [*dense, "head", "head_dist"]}
    relative = build("vit_ti/4", **PLAIN, depth=1, pos="relative")
    assert "blocks.0.attn.relative.table" in undecayed(relative)
    convit = build("convit_ti/4", **PLAIN, depth=2, gpsa=1)
    decayed = dict(convit.named_parameters()).keys() - undecayed(convit)
    assert decayed == {
        "patch_embed.proj.weight", "head.weight", "blocks.0.attn.qk.weight",
        "blocks.0.attn.v.weight",
        "blocks.0.attn.pos_proj.weight", "blocks.1.attn.qkv.weight",
        *(f"blocks.{i}.{part}.weight" for i in (0, 1) for part in ("attn.proj", "mlp.fc1",
        "mlp.fc2")),
    }  # fmt: skip
    resnet = build("resnet_18", **PLAIN)
    kinds = {name: type(module) for name, module in resnet.named_modules()}
    assert all(
        kinds[name.rpartition(".")[0]] is nn.BatchNorm2d or name == "fc.bias"
        for name in undecayed(resnet)
    )
    assert {name for name, kind in kinds.items() if kind in (nn.Conv2d, nn.Linear)} == {
        name.removesuffix(".weight")
        for name in dict(resnet.named_parameters()).keys() - undecayed(resnet)
    }


@pytest.mark.parametrize(
    "name", ["test_vit", "swin_tiny_patch4_window7_224", "convit_tiny", "pit_ti_224"]
)
def test_undecayed_parameters_are_timms(name: str) -> None:
    """timm's optimiser factory spares the same parameters."""
    with torch.device("meta"):
        model = timm.create_model(name)
    groups = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    spared = {id(parameter) for parameter in groups[0]["params"]}
    assert groups[0]["weight_decay"] == 0
    assert {
        name for name, parameter in model.named_parameters() if id(parameter) in spared
    } == undecayed(model)


def test_models_that_say_nothing_themselves() -> None:
    """torchvision's have no `no_weight_decay`: positions and tokens are known by their names."""
    with torch.device("meta"):
        vit, swin = torchvision.models.vit_b_32(), torchvision.models.swin_t()
    matrices = {name for name, p in vit.named_parameters() if p.ndim > 1}
    assert matrices & undecayed(vit) == {"class_token", "encoder.pos_embedding"}
    matrices = {name for name, p in swin.named_parameters() if p.ndim > 1} & undecayed(swin)
    assert len(matrices) == 12
    assert all(name.endswith("relative_position_bias_table") for name in matrices)


def test_an_objective_around_a_model_changes_no_group() -> None:
    model = build("vit_ti/4", **PLAIN, depth=2)
    recipe = Recipe(freeze=("blocks.0.*",), weight_decay=0.3)
    sizes = [
        [len(g["params"]) for g in optimiser(m, recipe).param_groups]
        for m in (model, Classify(model))
    ]
    assert sizes[0] == sizes[1]
    assert [g["weight_decay"] for g in optimiser(model, recipe).param_groups] == [0.3, 0.0]
    [everything] = optimiser(model, recipe.but(decay="all")).param_groups
    assert len(everything["params"]) == sum(sizes[0]) == len(list(model.parameters())) - 12


def test_freezing() -> None:
    model = build("convit_ti/4", **PLAIN)
    frozen = freeze(model, recipes.named("convit_frozen").freeze)
    assert frozen == [name for name, p in model.named_parameters() if not p.requires_grad]
    assert {name.split(".")[1] for name in frozen} == set("0123456789")
    assert len(frozen) == 10 * len(list(model.get_submodule("blocks.0.attn").parameters()))
    assert freeze(model, ()) == []
    with pytest.raises(
        UnknownName,
        match=r"no parameter to freeze called 'head\.wieght'\. Did you mean head\.weight",
    ):
        freeze(model, ["head.wieght"])
    with pytest.raises(VitreousError, match="nothing to train"):
        optimiser(model, Recipe(freeze=("*",)))


def by_hand(
    recipe: Recipe, weights: list[Tensor], gradients: list[list[Tensor]], decayed: list[bool]
) -> list[Tensor]:
    """AdamW and SGD from their definitions, float64."""
    out = []
    for index, start in enumerate(weights):
        w, m, v = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
        decay = recipe.weight_decay if decayed[index] else 0.0
        for t, step in enumerate(gradients, start=1):
            g = step[index].double()
            if recipe.optimiser == "sgd":
                g = g + decay * w
                m = g if t == 1 else recipe.momentum * m + g
                w = w - recipe.lr * (g + recipe.momentum * m if recipe.nesterov else m)
            else:
                w = w * (1 - recipe.lr * decay)
                m = recipe.betas[0] * m + (1 - recipe.betas[0]) * g
                v = recipe.betas[1] * v + (1 - recipe.betas[1]) * g * g
                corrected = m / (1 - recipe.betas[0] ** t), v / (1 - recipe.betas[1] ** t)
                w = w - recipe.lr * corrected[0] / (corrected[1].sqrt() + recipe.eps)
        out.append(w)
    return out


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3),
        Recipe(optimiser="sgd", lr=0.1, momentum=0.8, weight_decay=0.3),
        Recipe(optimiser="sgd", lr=0.1, momentum=0.8, weight_decay=0.3, nesterov=True),
    ],
    ids=["adamw", "sgd", "nesterov"],
)
def test_steps_by_hand(recipe: Recipe) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    start = [p.detach().clone() for p in model.parameters()]
    gradients = [[torch.randn_like(p) for p in start] for _ in range(3)]
    moving = optimiser(model, recipe)
    for step in gradients:
        for parameter, gradient in zip(model.parameters(), step, strict=True):
            parameter.grad = gradient.clone()
        moving.step()
    expected = by_hand(recipe, start, gradients, [p.ndim == 2 for p in start])
    for found, right in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(found.detach(), right, rtol=1e-10, atol=1e-12)


def test_the_same_steps_twice_are_the_same_bits() -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        model = build("vit_ti/4", **PLAIN, depth=1, init="timm")
        moving = optimiser(model, Recipe())
        for _ in range(2):
            moving.zero_grad()
            model(torch.randn(4, 3, 16, 16)).square().mean().backward()
            clip_gradients(model.parameters(), 0.1)
            moving.step()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("largest", [None, 0.5, 1e6])
def test_clipping(largest: float | None) -> None:
    parameters = [
        nn.Parameter(torch.randn(5, 3)),
        nn.Parameter(torch.randn(7)),
        nn.Parameter(torch.randn(2)),
    ]
    before = [torch.randn_like(p) for p in parameters[:2]]
    for parameter, gradient in zip(parameters, before, strict=False):
        parameter.grad = gradient.clone()
    norm = clip_gradients(iter(parameters), largest)
    right = math.sqrt(sum(float(g.double().square().sum()) for g in before))
    assert norm.shape == ()
    assert float(norm) == pytest.approx(right, rel=1e-6)
    scale = 1.0 if largest is None else min(1.0, largest / right)
    for parameter, gradient in zip(parameters, before, strict=False):
        torch.testing.assert_close(parameter.grad, scale * gradient, rtol=1e-5, atol=0)
    assert parameters[2].grad is None


def test_nothing_to_clip() -> None:
    assert float(clip_gradients([nn.Parameter(torch.ones(2))], 1.0)) == 0


def test_running_mean() -> None:
    """The closed form of the mean, weights of the model untouched, buffers copied."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    mean = average(model, 0.9)
    seen = []
    for step in range(4):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        model(torch.randn(5, 2).double() + step)
        seen.append([p.detach().clone() for p in model.parameters()])
        mean.update_parameters(model)
    weights = [0.9**3, 0.1 * 0.9**2, 0.1 * 0.9, 0.1]
    for index, found in enumerate(mean.module.parameters()):
        right = sum(w * each[index] for w, each in zip(weights, seen, strict=True))
        torch.testing.assert_close(found, right)
        assert found.requires_grad
        assert found.is_leaf
    for copied, buffer in zip(mean.module.buffers(), model.buffers(), strict=True):
        assert torch.equal(copied, buffer)
    assert all(p.requires_grad for p in model.parameters())
