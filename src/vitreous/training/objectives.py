"""Objectives: modules around a model whose forward pass is the loss of a batch.

The training loop knows nothing else: it compiles, distributes and saves this one module.
`objective` builds the one that a recipe names. Losses are computed in float32 at every precision.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.errors import VitreousError
from vitreous.models.stems import PatchEmbed
from vitreous.models.vit import ViT

Triple = tuple[float, float, float]
Target = Literal["colour", "patch_colours", "pixels"]


class Objective(nn.Module):
    """Base class: `forward(images, targets)` is the mean loss of a batch with soft targets."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class Classify(Objective):
    """Cross-entropy with soft targets."""

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(_logits(self.model(images)), targets)


class Distil(Objective):
    """Cross-entropy with the targets, and with a teacher's output for the same images (DeiT).

    Parameters
    ----------
    model
        A distilled model has two outputs, and the second learns from the teacher. Any other model
        learns both with one output.
    teacher
        Gets the same normalised images as the student. A copy of it moves to devices with this
        module, but is not a submodule: it stays in evaluation mode, has no gradients and is never
        saved.
    hard
        Whether the teacher's arg-max is the label; else the loss is τ² KL(teacher ‖ student) at
        temperature τ, per image as in the paper (its code also divides by the number of classes).
    tau, taught
        The temperature τ, and the weight of the teacher's term.
    """

    def __init__(
        self, model: nn.Module, teacher: nn.Module, *, hard: bool, tau: float, taught: float
    ) -> None:
        super().__init__(model)
        ours, theirs = (getattr(each, "num_classes", None) for each in (model, teacher))
        if None not in (ours, theirs) and ours != theirs:
            raise VitreousError(
                f"The teacher knows {theirs} classes and the model {ours}: they have to be the "
                "same."
            )
        # In a tuple, because nn.Module registers only modules that are attributes themselves.
        self.teacher = (deepcopy(teacher).eval().requires_grad_(False),)
        self.hard, self.tau, self.taught = hard, tau, taught
        enable = getattr(model, "set_distilled_training", None)
        if enable is not None:
            enable(True)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the teacher too: nn.Module sends `to`, `cuda`, `float` and the like through here."""
        teacher: Any = self.teacher[0]
        teacher._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        output = self.model(images)
        pair = output if isinstance(output, tuple) else (output, output)
        first, second = _logits(pair[0]), _logits(pair[1])
        with torch.no_grad():
            teacher = _logits(self.teacher[0](images))
        if teacher.shape != second.shape:
            raise VitreousError(
                f"The teacher answers {tuple(teacher.shape)} and the model {tuple(second.shape)}."
            )
        if self.hard:
            distilled = F.cross_entropy(second, teacher.argmax(-1))
        else:
            student = F.log_softmax(second / self.tau, -1)
            truth = F.log_softmax(teacher / self.tau, -1)
            divergence = F.kl_div(student, truth, reduction="batchmean", log_target=True)
            distilled = self.tau**2 * divergence
        return (1 - self.taught) * F.cross_entropy(first, targets) + self.taught * distilled


class MaskedPatches(Objective):
    """Masked patch prediction (Dosovitskiy et al. 2021, B.1.2); the labels are not used.

    Of every image exactly `share` of the patch embeddings are corrupted: 80 % become a learned
    token, 10 % that of another patch of the image, 10 % stay. At those places only, the target is

    - "colour": the mean colour with 3 bits a channel, one of 512;
    - "patch_colours": the same for each cell of the patch shrunk to 4 x 4, 16 times one of 512;
    - "pixels": all normalised pixels of the patch, by squared error.

    The classifier is not used. It is frozen, because DDP would wait for its gradients.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: nn.Module, *, target: Target, share: float, mean: Triple, std: Triple
    ) -> None:
        super().__init__(model)
        if not isinstance(model, ViT) or not isinstance(model.patch_embed, PatchEmbed):
            raise VitreousError(
                f"Masked patches are for our ViT with stem='patch', not for {type(model).__name__}."
            )
        self.patch = int(model.patch_embed.proj.kernel_size[0])
        channels, height, width = model.shape
        self.count = round(share * (height // self.patch * (width // self.patch)))
        if target == "patch_colours" and self.patch < 4:
            raise VitreousError(
                "masked_target 'patch_colours' needs patches of at least 4 pixels, not "
                f"{self.patch}."
            )
        if not self.count:
            raise VitreousError(
                f"masked_share {share} of the patches of {model.shape[1:]} is none: take a larger "
                "one."
            )
        self.target = target
        counts = {"colour": 512, "patch_colours": 16 * 512, "pixels": channels * self.patch**2}
        self.mask_token = nn.Parameter(0.02 * torch.randn(model.num_features))
        self.predict = nn.Linear(model.num_features, counts[target])
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)
        for part in (model.fc_norm, model.pre_logits, model.head, model.head_dist):
            if part is not None:
                part.requires_grad_(False)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        model: Any = self.model
        tokens, chosen = self.corrupt(model.patch_embed(images))
        x = model.place(tokens)
        for index, block in enumerate(model.blocks):
            x = block(model.enter(index, x))
        x = _gather_tokens(model.norm(x)[:, model.num_prefix_tokens :], chosen)
        truth = _gather_tokens(self.truth(images).flatten(2), chosen)
        predicted = self.predict(x).float()
        if self.target == "pixels":
            return F.mse_loss(predicted, truth)
        return F.cross_entropy(predicted.unflatten(-1, (-1, 512)).flatten(0, 2), truth.flatten())

    def corrupt(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Replace some patch embeddings (n, N, d); also returns their indices (n, count)."""
        batch, total, _ = tokens.shape
        uniform = torch.rand(batch, total + self.count, device=tokens.device)
        chosen = uniform[:, :total].argsort(1)[:, : self.count]
        which_change = uniform[:, total:, None]  # 80 % mask token, 10 % another patch, 10 % kept
        shift = torch.randint(1, max(2, total), chosen.shape, device=tokens.device)
        others = _gather_tokens(tokens, (chosen + shift) % total)
        changed = torch.where(which_change < 0.9, others, _gather_tokens(tokens, chosen))
        changed = torch.where(which_change < 0.8, self.mask_token.to(tokens.dtype), changed)
        return tokens.scatter(1, chosen[..., None].expand_as(changed), changed), chosen

    def truth(self, images: Tensor) -> Tensor:
        """The targets of every patch, (n, N, targets per patch)."""
        images = images.float()
        if self.target == "pixels":
            return _patches(images, self.patch).flatten(2)
        cells = 1 if self.target == "colour" else 4
        patches = _patches((images * self.std + self.mean).clamp(0, 1), self.patch)
        means = F.adaptive_avg_pool2d(patches.flatten(0, 1), cells)
        levels = (8 * means).long().clamp(max=7)
        classes = 64 * levels[:, 0] + 8 * levels[:, 1] + levels[:, 2]
        return classes.flatten(1).unflatten(0, patches.shape[:2])


def objective(
    recipe: Recipe, model: nn.Module, *, teacher: nn.Module | None = None, mean: Triple, std: Triple
) -> Objective:
    """The recipe's objective; `mean` and `std` are those that the images were normalised with."""
    distils = recipe.objective in ("distil_hard", "distil_soft")
    if distils and teacher is None:
        raise VitreousError(f"The recipe {recipe.name!r} learns from a teacher and none was given.")
    if teacher is not None and not distils:
        raise VitreousError(
            f"A teacher was given and the recipe {recipe.name!r} has objective "
            f"{recipe.objective!r}."
        )
    if teacher is not None:
        hard = recipe.objective == "distil_hard"
        return Distil(model, teacher, hard=hard, tau=recipe.tau, taught=recipe.taught)
    if recipe.objective == "masked":
        return MaskedPatches(
            model, target=recipe.masked_target, share=recipe.masked_share, mean=mean, std=std
        )
    return Classify(model)


def _logits(output: Any) -> Tensor:
    """float32 logits from a model's output, which may be an object of Hugging Face's."""
    return getattr(output, "logits", output).float()


def _gather_tokens(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Tokens (n, N, d) at the places (n, k): (n, k, d)."""
    return tokens.gather(1, chosen[..., None].expand(-1, -1, tokens.shape[-1]))


def _patches(images: Tensor, side: int) -> Tensor:
    """Patches of images in the order of the tokens: (n, N, channels, side, side)."""
    # n, channels, rows, side, columns, side
    grid = images.unflatten(-1, (-1, side)).unflatten(-3, (-1, side))
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
