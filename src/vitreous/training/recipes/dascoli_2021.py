"""d'Ascoli et al., ConViT: trained with the recipe of DeiT, and DeiT with distillation.

Two settings of the released code have no effect and are left out here: a colour jitter of 0.4,
which timm's transform ignores with RandAugment, and a cool-down of 10 epochs, which would come
after the loop has ended. Two others differ a little: the released warm-up changes lr once an epoch,
ours every step; and the released cosine starts at the first epoch, ours at the end of the warm-up,
so that it starts at the full lr. The two learning rates differ by at most 1.6 % of the maximum.
"""

from __future__ import annotations

from vitreous.config import Augment, Recipe


def deit(batch: int = 1024) -> Recipe:
    """DeiT on ImageNet: 300 epochs of AdamW, strong augmentation, lr 5e-4 for every 512 images."""
    return Recipe(
        name="deit",
        epochs=300,
        batch=batch,
        lr=5e-4 * batch / 512,
        weight_decay=0.05,
        decay="matrices",
        paced="epoch",
        warmup=5,
        warmup_from=1e-6,
        last_lr=1e-5,
        model={"drop_path": 0.1},
        augment=Augment(
            crop="resized",
            randaugment="rand-m9-mstd0.5-inc1",
            erasing=0.25,
            mixup=0.8,
            cutmix=1.0,
            smoothing=0.1,
            repeats=3,
        ),
    )


def deit_plus() -> Recipe:
    """`deit` for the "+" sizes: batch 512, lr 4e-4; the others keep 1024."""
    return deit(batch=512).but(name="deit_plus", lr=4e-4)


def convit(batch: int = 1024) -> Recipe:
    """ConViT on ImageNet: the recipe of DeiT, unchanged."""
    return deit(batch).but(name="convit")


def convit_plus() -> Recipe:
    """`convit` for the "+" sizes: batch 512, lr 4e-4."""
    return deit_plus().but(name="convit_plus")


def convit_cifar() -> Recipe:
    """ConViT on CIFAR-100 resized to 224: 1000 epochs, as in the text; the figure shows 3000."""
    return convit().but(name="convit_cifar", epochs=1000)


def convit_frozen() -> Recipe:
    """`convit` with the attention of the ten gated blocks left as it was initialised."""
    return convit().but(name="convit_frozen", freeze=("blocks.[0-9].attn.*",))


def deit_distilled() -> Recipe:
    """DeiT with a distillation token and head, which learn the arg-max of the teacher."""
    return deit().but(
        name="deit_distilled", objective="distil_hard", taught=0.5, **{"model.distilled": True}
    )


def deit_distilled_soft() -> Recipe:
    """DeiT that learns the teacher's probabilities at temperature 3 with weight 0.1."""
    changes = {"model.distilled": True}
    return deit().but(
        name="deit_distilled_soft", objective="distil_soft", tau=3.0, taught=0.1, **changes
    )
