"""Dosovitskiy et al., An Image is Worth 16x16 Words: pre-training, masked patches, fine-tuning.

The paper's Adam with weight decay is AdamW: the decay is multiplied by lr. The paper excludes no
parameters from the decay, and neither do these recipes. It does not state the augmentation; here it
is the usual random resized crop and a flip. Warm-ups are in steps of the paper's batch: for small
data, set `epochs` and `warmup_steps` to fit.
"""

from __future__ import annotations

from vitreous.config import Augment, Recipe


def vit_pretrain() -> Recipe:
    """ViT on ImageNet from scratch: 300 epochs, lr 3e-3, weight decay 0.3, dropout 0.1, cosine."""
    return Recipe(
        name="vit_pretrain",
        epochs=300,
        batch=4096,
        lr=3e-3,
        weight_decay=0.3,
        decay="all",
        warmup_steps=10_000,
        clip=1.0,
        model={"head": "tanh", "dropout": 0.1},
        augment=Augment(crop="resized"),
    )


def vit_pretrain_in21k(epochs: int = 90) -> Recipe:
    """ViT on ImageNet-21k: 90 epochs (30 for a smaller run of ViT-L), lr 1e-3, linear."""
    return vit_pretrain().but(
        name="vit_pretrain_in21k",
        epochs=epochs,
        lr=1e-3,
        weight_decay=0.03,
        schedule="linear",
        clip=None,
    )


def vit_pretrain_jft(lr: float = 8e-4, epochs: int = 7) -> Recipe:
    """ViT-B on a very large set: 7 epochs, weight decay 0.1, no dropout, linear.

    Other networks have another lr: ViT-L/32 6e-4, L/16 4e-4, H/14 3e-4 (14 epochs), ResNets 1e-3
    (R50), 8e-4 (R101) and 6e-4 (R152), hybrids R50+B 8e-4, R50+L/32 2e-4, R50+L/16 4e-4.
    """
    changes = {"model.dropout": 0.0}
    return vit_pretrain().but(
        name="vit_pretrain_jft",
        epochs=epochs,
        lr=lr,
        weight_decay=0.1,
        schedule="linear",
        clip=None,
        **changes,
    )


def masked() -> Recipe:
    """Masked patch prediction: 1M steps of batch 4096, lr 2e-4, half of the patches corrupted.

    The mean colour is predicted; `masked_target` chooses another target. The paper states neither
    weight decay nor mixing, so there is none.
    """
    return Recipe(
        name="masked",
        objective="masked",
        steps=1_000_000,
        batch=4096,
        lr=2e-4,
        weight_decay=0.0,
        warmup_steps=10_000,
        augment=Augment(crop="resized"),
    )


def vit_finetune(steps: int = 10_000, lr: float = 0.03) -> Recipe:
    """Fine-tuning on CIFAR: 10k steps of SGD, batch 512, zero head, usually higher resolution.

    The paper tries lr 0.001, 0.003, 0.01 and 0.03; 0.01 is best for ViT-B/16 on CIFAR-10. The code
    warms up for 500 steps; a run of fewer than 2500 takes a fifth of its length instead.
    """
    return Recipe(
        name="vit_finetune",
        steps=steps,
        batch=512,
        optimiser="sgd",
        lr=lr,
        momentum=0.9,
        weight_decay=0.0,
        warmup_steps=min(500, steps // 5),
        clip=1.0,
        head="zero",
        augment=Augment(crop="resized"),
    )


def vit_finetune_imagenet() -> Recipe:
    """Fine-tuning on ImageNet: 20k steps, with the running mean of weights of the main results."""
    return vit_finetune(steps=20_000).but(name="vit_finetune_imagenet", ema=0.9999)


def vit_finetune_pets() -> Recipe:
    """Fine-tuning on Pets or Flowers: 500 steps."""
    return vit_finetune(steps=500).but(name="vit_finetune_pets")


def vit_finetune_vtab() -> Recipe:
    """Fine-tuning on a task of VTAB: 2500 steps at lr 0.01, whatever the task."""
    return vit_finetune(steps=2500, lr=0.01).but(name="vit_finetune_vtab")
