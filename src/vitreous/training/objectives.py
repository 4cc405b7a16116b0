"""What is minimised: a module around the model that gives the loss of a batch.

The training loop knows nothing else: it compiles, distributes and checkpoints this one module. `objective` builds the
one that a recipe names. Every loss is computed in float32, whatever precision the model runs in.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """`forward(images, targets)` is the mean loss of normalised images and soft targets (n, classes)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class Classify(Objective):
    """Cross-entropy with soft targets."""

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(_logits(self.model(images)), targets)


class Distil(Objective):
    """Cross-entropy with the targets, and with what a teacher says of the same images (A3.14).

    `hard` takes the teacher's arg-max for the truth; otherwise τ² KL(teacher ‖ student) at temperature τ, per image as
    in DeiT's paper (its code divides by the number of classes as well). `taught` is the weight of this second term. A
    distilled model gives two outputs, and the second learns from the teacher; any other learns both with one.

    The teacher follows to the model's device, but it is no part of the module: it is always in evaluation mode, has no
    gradients, and no checkpoint holds it. It sees the images as they are normalised for the student.
    """

    def __init__(
        self, model: nn.Module, teacher: nn.Module, *, hard: bool, tau: float, taught: float
    ) -> None:
        super().__init__(model)
        ours, theirs = (getattr(each, "num_classes", None) for each in (model, teacher))
        if None not in (ours, theirs) and ours != theirs:
            raise VitreousError(
                f"The teacher knows {theirs} classes and the model {ours}: they have to be the same."
            )
        self.hidden = (
            teacher.eval().requires_grad_(False),
        )  # in a tuple, where nn.Module does not look
        self.hard, self.tau, self.taught = hard, tau, taught
        enable = getattr(model, "set_distilled_training", None)
        if enable is not None:
            enable(True)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What every move to a device or type goes through: the teacher comes along."""
        teacher: Any = self.hidden[0]
        teacher._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        answer = self.model(images)
        own, second = map(_logits, answer if isinstance(answer, tuple) else (answer, answer))
        with torch.no_grad():
            teacher = _logits(self.hidden[0](images))
        if teacher.shape != second.shape:
            raise VitreousError(
                f"The teacher answers {tuple(teacher.shape)} and the model {tuple(second.shape)}."
            )
        if self.hard:
            lesson = F.cross_entropy(second, teacher.argmax(-1))
        else:
            said, right = (F.log_softmax(logits / self.tau, -1) for logits in (second, teacher))
            lesson = self.tau**2 * F.kl_div(said, right, reduction="batchmean", log_target=True)
        return (1 - self.taught) * F.cross_entropy(own, targets) + self.taught * lesson


class MaskedPatches(Objective):
    """Predict what corrupted patches looked like (A3.07); the targets of the data are not used.

    Of every image exactly `share` of the patch embeddings are corrupted: 80 % become a learned token, 10 % that of
    another patch of the image, 10 % stay. What is predicted, at those places only:

    - "colour": the mean colour with 3 bits a channel, one of 512;
    - "patch_colours": the same for each cell of the patch shrunk to 4 x 4, 16 times one of 512;
    - "pixels": all pixels of the patch as the model sees them, by squared error.

    The classifier takes no part and is frozen, so that no process waits for its gradients.
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
        self.count = round(
            share * _patches(torch.empty(1, *model.shape, device="meta"), self.patch).shape[1]
        )
        if target == "patch_colours" and self.patch < 4:
            raise VitreousError(
                f"masked_target 'patch_colours' needs patches of at least 4 pixels, not {self.patch}."
            )
        if not self.count:
            raise VitreousError(
                f"masked_share {share} of the patches of {model.shape[1:]} is none: take a larger one."
            )
        self.target = target
        outputs = {
            "colour": 512,
            "patch_colours": 16 * 512,
            "pixels": model.shape[0] * self.patch**2,
        }[target]
        self.mask_token = nn.Parameter(0.02 * torch.randn(model.num_features))
        self.predict = nn.Linear(model.num_features, outputs)
        for name, moments in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(moments).view(-1, 1, 1), persistent=False)
        for part in (model.fc_norm, model.pre_logits, model.head, model.head_dist):
            if part is not None:
                part.requires_grad_(False)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        model: Any = self.model
        tokens, chosen = self.corrupt(model.patch_embed(images))
        x = model.place(tokens)
        for index, block in enumerate(model.blocks):
            x = block(model.enter(index, x))
        x = _take(model.norm(x)[:, model.num_prefix_tokens :], chosen)
        truth = _take(self.truth(images).flatten(2), chosen)
        answer = self.predict(x).float()
        if self.target == "pixels":
            return F.mse_loss(answer, truth)
        return F.cross_entropy(answer.unflatten(-1, (-1, 512)).flatten(0, 2), truth.flatten())

    def corrupt(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (n, N, d) with some replaced, and which (n, count)."""
        batch, total, _ = tokens.shape
        draw = torch.rand(batch, total + self.count, device=tokens.device)
        chosen = draw[:, :total].argsort(1)[:, : self.count]
        fate = draw[:, total:, None]
        others = (
            chosen + torch.randint(1, max(2, total), chosen.shape, device=tokens.device)
        ) % total
        changed = torch.where(fate < 0.9, _take(tokens, others), _take(tokens, chosen))
        changed = torch.where(fate < 0.8, self.mask_token.to(tokens.dtype), changed)
        return tokens.scatter(1, chosen[..., None].expand_as(changed), changed), chosen

    def truth(self, images: Tensor) -> Tensor:
        """What is to be predicted of every patch: (n, N, numbers)."""
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
    """What the recipe asks to minimise; `mean` and `std` are those that the images were normalised with."""
    distils = recipe.objective in ("distil_hard", "distil_soft")
    if distils and teacher is None:
        raise VitreousError(f"The recipe {recipe.name!r} learns from a teacher and none was given.")
    if teacher is not None and not distils:
        raise VitreousError(
            f"A teacher was given and the recipe {recipe.name!r} has objective {recipe.objective!r}."
        )
    if teacher is not None:
        hard = recipe.objective == "distil_hard"
        return Distil(model, teacher, hard=hard, tau=recipe.tau, taught=recipe.taught)
    if recipe.objective == "masked":
        return MaskedPatches(
            model, target=recipe.masked_target, share=recipe.masked_share, mean=mean, std=std
        )
    return Classify(model)


def _logits(answer: Any) -> Tensor:
    """float32 logits of a model, also of one of Hugging Face's."""
    return getattr(answer, "logits", answer).float()


def _take(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Rows (n, k) of tokens (n, N, d)."""
    return tokens.gather(1, chosen[..., None].expand(-1, -1, tokens.shape[-1]))


def _patches(images: Tensor, side: int) -> Tensor:
    """(n, N, channels, side, side), in the order of the tokens."""
    cut = images.unflatten(-1, (-1, side)).unflatten(
        -3, (-1, side)
    )  # n, channels, rows, side, columns, side
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
