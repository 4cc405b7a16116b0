"""Park and Kim, How Do Vision Transformers Work?: one recipe for CNNs and transformers.

The warm-up starts at zero, changes lr every step and is added to the epochs. The cosine changes lr
once an epoch. Weight decay applies to every parameter. mixup 1.0 and CutMix 0.8 are as released;
DeiT has these two values swapped.
"""

from __future__ import annotations

from vitreous.config import Augment, Recipe


def hdv_cifar() -> Recipe:
    """Park and Kim's main recipe for CIFAR, for CNNs and transformers alike: 5 + 300 epochs."""
    return Recipe(
        name="hdv_cifar",
        epochs=300,
        batch=96,
        lr=1.25e-4,
        weight_decay=0.05,
        decay="all",
        paced="epoch",
        warmup=5,
        warmup_extra=True,
        clip=5.0,
        model={"drop_path": 0.1},
        augment=Augment(randaugment="rand-m9-n2-mstd1.0", mixup=1.0, cutmix=0.8, smoothing=0.1),
    )


def hdv_noaug() -> Recipe:
    """`hdv_cifar` with crop and flip only, neither smoothed labels nor clipped gradients."""
    return hdv_cifar().but(name="hdv_noaug", clip=None, augment=Augment())


def hdv_general() -> Recipe:
    """Park and Kim's SGD in steps for CIFAR, with crop and flip only: 1 + 200 epochs."""
    return Recipe(
        name="hdv_general",
        epochs=200,
        batch=128,
        optimiser="sgd",
        lr=0.1,
        momentum=0.9,
        weight_decay=5e-4,
        decay="all",
        schedule="step",
        paced="epoch",
        milestones=(60, 120, 160),
        gamma=0.2,
        warmup=1,
        warmup_extra=True,
    )


def hdv_imagenet(batch: int = 128) -> Recipe:
    """Park and Kim's main recipe for ImageNet: 5 + 300 epochs, lr growing with the batch."""
    augment = {"crop": "resized", "randaugment": "rand-m9-n2-mstd0.5", "erasing": 0.25}
    changes = {f"augment.{key}": value for key, value in augment.items()}
    return hdv_cifar().but(
        name="hdv_imagenet", batch=batch, lr=1.25e-4 * batch / 128, clip=None, **changes
    )


def hdv_imagenet_general() -> Recipe:
    """Park and Kim's SGD in steps for ImageNet: 90 epochs without warm-up, as none is stated."""
    return Recipe(
        name="hdv_imagenet_general",
        epochs=90,
        batch=256,
        optimiser="sgd",
        lr=0.1,
        momentum=0.9,
        weight_decay=1e-4,
        decay="all",
        schedule="step",
        paced="epoch",
        milestones=(30, 60, 80),
        gamma=0.1,
        warmup=0,
        augment=Augment(crop="resized"),
    )


def fast(epochs: int = 100) -> Recipe:
    """`hdv_cifar` for one GPU: batch 512, lr scaled with it, 5 + 100 epochs instead of 5 + 300."""
    return hdv_cifar().but(name="fast", batch=512, lr=6.7e-4, epochs=epochs)


def ablation() -> Recipe:
    """`fast` with 30 epochs, for sweeps over three seeds."""
    return fast(epochs=30).but(name="ablation")


def smoothing() -> Recipe:
    """`hdv_general` for a CNN with spatial smoothing before each sub-sampling."""
    return hdv_general().but(name="smoothing", model={"smooth": "tanh"})
