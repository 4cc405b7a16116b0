"""Which questions stand where in a report, and what each asks, in plain words.

A probe that is not in the table appears all the same, in the last group, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GROUPS = {
    "overview": "At a glance",
    "representation": "What every unit does to the picture",
    "attention": "Where heads look",
    "frequency": "Which frequencies pass",
    "output": "What comes out",
    "lesions": "What matters",
    "robustness": "What breaks it",
    "curvature": "How sharp the loss is",
    "weights": "What the weights hold",
    "more": "More",
}
"""Groups in the order of the page, and their headings."""


@dataclass(frozen=True)
class Question:
    """One probe as the reader meets it."""

    group: str
    asks: str
    """The question, as a heading."""
    says: str
    """What is measured, and why one would want to know."""
    paper: str = ""
    """What was found where it was first asked."""


QUESTIONS = {
    "accuracy": Question(
        "overview",
        "How often are they right?",
        "The share of images whose most probable class is the true one.",
    ),
    "cost": Question(
        "overview",
        "What do they cost?",
        "Parameters, floating-point operations for one image, and images a second on the machine that made this page.",
        "ConViT's gated attention runs at 0.51 to 0.84 of the speed of DeiT's (d'Ascoli et al. 2021, Table 1; CVT-03).",
    ),
    "cka": Question(
        "representation",
        "Which units see alike?",
        "Centred kernel alignment compares two units by how they arrange the same images: 1 where they agree on "
        "which images are alike, 0 where they have nothing in common. It does not mind rotation or scale.",
        "A ViT is uniform from its first to its last layer; a ResNet falls apart into stages (Raghu et al. 2021, "
        "Fig. 1; SLC-03, SLC-04; Park and Kim 2022, Fig. 10; HDV-39).",
    ),
    "variance": Question(
        "representation",
        "Which units average over the image?",
        "How much a feature map varies from place to place, after every unit. What lowers it averages; what raises it "
        "tells places apart.",
        "In a ViT-Ti on CIFAR-100 attention lowers it in 12 of 12 blocks and MLPs raise it in 8 of 12; a ResNet's "
        "rises within stages and falls where the grid shrinks (Park and Kim 2022, Fig. 9; HDV-34 to HDV-37).",
    ),
    "skip_ratio": Question(
        "representation",
        "Does the signal take the skip or the branch?",
        "The norm of what the skip carries, over the norm of what the branch adds to it, for every token.",
        "In a ViT-B/16 the class token is carried by skips in the first half (ratios of 2 to 12) and by branches in "
        "the second; for the other tokens it is the reverse (Raghu et al. 2021, Fig. 7; SLC-14, SLC-15).",
    ),
    "localisation": Question(
        "representation",
        "Does a token still know where it came from?",
        "Every token of the last block is compared, over many images, with the picture at every place.",
        "Tokens of a ViT with a class token stay where they are; those of a ResNet, or of a ViT that averages its "
        "tokens, do not (Raghu et al. 2021, Fig. 9 and 10; SLC-19, SLC-21).",
    ),
    "attention_distance": Question(
        "attention",
        "How far do heads look?",
        "The mean distance, in pixels of the image, between a patch and what it attends to, for every head.",
        "Low layers mix heads that look near and far, high layers look everywhere (Dosovitskiy et al. 2021, Fig. 7; "
        "Raghu et al. 2021, Fig. 3; VIT-13, SLC-09, SLC-10).",
    ),
    "nonlocality": Question(
        "attention",
        "How far do layers look?",
        "The same distance in patches, mean over the heads of a layer.",
        "Uniform attention gives 7.28 patches on a grid of 14×14 and 4.14 on 8×8. ConViT begins at 2.9, rises while it "
        "learns, and ends below DeiT (d'Ascoli et al. 2021, Fig. 5; CVT-10, CVT-11).",
    ),
    "attention_entropy": Question(
        "attention",
        "Do heads look at one place or at everything?",
        "The entropy of attention: none where a head looks at a single place, most where it looks at all alike.",
    ),
    "head_diversity": Question(
        "attention",
        "Do the heads of a layer look at different things?",
        "How much the attention of one head differs from that of the others in its layer (CVT-16).",
    ),
    "attention_maps": Question(
        "attention",
        "What does a patch look at?",
        "Attention as it is, image by image: choose a patch, a layer and a head, and see where it looks.",
        "Heads of ConViT's layer 2 keep to one offset, those of layer 10 follow content (d'Ascoli et al. 2021, Fig. 4; "
        "A4.30).",
    ),
    "rollout": Question(
        "attention",
        "What does the answer rest on?",
        "Attention multiplied through all layers, the skips counted in: from which patches the output token has "
        "gathered what it knows.",
        "It covers the object that names the class (Dosovitskiy et al. 2021, Fig. 6; VIT-16).",
    ),
    "local_heads": Question(
        "attention",
        "Do heads that look near see like a convolution?",
        "The heads of the first attention unit, from nearest to farthest, compared with the early units of a "
        "convolutional network.",
        "The nearer heads look, the more they resemble early ResNet units: CKA between 0.25 and 0.60, falling "
        "with distance (Raghu et al. 2021, Fig. 5; SLC-13).",
    ),
    "fourier": Question(
        "frequency",
        "Which units blur, which sharpen?",
        "The amplitude of fine detail in a feature map, relative to that of its mean, after every unit. Attention "
        "should lower it, convolutions and MLPs raise it.",
        "In a ViT-Ti on ImageNet attention lowers the amplitude at 1.0π in 9 of 12 blocks; the stream ends at −2.3, "
        "below the −1.8 it began with. A ResNet-50 rises from −6.6 to −1.0 (Park and Kim 2022, Fig. 2 and 8; HDV-26 "
        "to HDV-30).",
    ),
    "calibration": Question(
        "output",
        "Are they as sure as they are right?",
        "Images are sorted by how sure the model was; in every group the share of right answers should be that very "
        "confidence. The mean gap is the expected calibration error.",
        "Without augmentation models are over-confident, with strong augmentation under-confident (Park and Kim 2022, "
        "appendix E; HDV-49).",
    ),
    "ensemble": Question(
        "output",
        "What do they know together?",
        "The probabilities of all models are averaged: how good is that mean, beside each model alone, and how often "
        "do two of them answer differently?",
        "Park and Kim (2022) read attention as such a mean, over places instead of models (HDV-55).",
    ),
    "mc_dropout": Question(
        "output",
        "Is a mean over dropped passes better than one pass?",
        "Dropout stays on while the images pass again and again, and probabilities are averaged: the plainest way to "
        "ask a network what it does not know.",
        "With spatial smoothing two such passes are as good as fifty without it; attention is read as a mean of the "
        "same kind, over places instead of passes (Park and Kim 2022, appendix B; HDV-52, HDV-55).",
    ),
    "equivariance": Question(
        "output",
        "What happens when the image moves?",
        "The image is shifted, and the features should shift with it; the output should not change at all.",
    ),
    "linear_probe": Question(
        "representation",
        "Where do classes become easy to tell apart?",
        "A linear map is fitted from the features of every unit, which stay as they are, to the classes, and asked on "
        "other images.",
        "At the top of a ViT with a class token, probes of single tokens have 6 to 10 % of ImageNet right, 57 to 58 % "
        "if the model averages its tokens, and 44 to 52 % in a ResNet-50 (Raghu et al. 2021, Fig. 11; SLC-22).",
    ),
    "erf": Question(
        "representation",
        "How much of the image does a place depend on?",
        "The gradient of one position of a feature map with respect to the pixels, without its sign: the effective "
        "receptive field.",
        "A ViT's are larger than a ResNet's from the beginning, global by the middle, and keep a bright centre that "
        "skips carry (Raghu et al. 2021, Fig. 6; SLC-31).",
    ),
    "similarity_to": Question(
        "representation",
        "Which units have learned the same in another training?",
        "Each unit is compared with the unit of its name in another model, an earlier state of it for example, by "
        "centred kernel alignment on the same images.",
        "Lower units are alike from 3 % of the data on, upper ones need more; fine-tuning leaves the first four or "
        "five blocks as they were (Raghu et al. 2021, Fig. 12 and appendix G; SLC-26, SLC-32).",
    ),
    "lesion": Question(
        "lesions",
        "Which units matter?",
        "One unit is taken out of the trained model, nothing is retrained, and the same images are asked again.",
        "A ResNet needs its early stages, and the first layers of each stage; in Swin MLPs matter at the beginning of "
        "a stage and attention at its end (Park and Kim 2022, Fig. 10; HDV-40, HDV-41). With the position embedding "
        "masked DeiT-Ti falls from 72.2 to 38.3 %, ConViT-Ti from 73.1 to 67.1 % (d'Ascoli et al. 2021; CVT-29).",
    ),
    "corruption": Question(
        "robustness",
        "What do noise, blur, weather and bad cameras cost?",
        "Accuracy on images corrupted in nineteen ways, each at five severities, and how far confidence falls along "
        "with it. mCE compares the errors with those of the first model.",
        "Mean accuracy over fifteen corruptions and five severities is how Park and Kim (2022) and the authors of "
        "CIFAR-10-C (Hendrycks and Dietterich 2019) measure robustness (A4.16).",
    ),
    "band_noise": Question(
        "robustness",
        "Which frequencies of noise can they not stand?",
        "Noise is made of waves of about one frequency, coarse on the left and fine on the right, and so strong that "
        "the first model loses a tenth of the images in the mean.",
        "On ImageNet a ResNet-50 loses 15.4 points to the finest noise and a ViT 4.8; to coarse noise, at 0.3π, they "
        "lose 12.7 and 14.9 (Park and Kim 2022, Fig. 2; HDV-32).",
    ),
    "adversarial": Question(
        "robustness",
        "How little misleads them?",
        "Every pixel may move by a few levels of 255, in the direction in which the loss grows: in one step (FGSM) or "
        "in several (PGD).",
    ),
    "frequency_pass": Question(
        "robustness",
        "Do they need coarse form or fine detail?",
        "Images are shown with their slow waves alone, which is a blur, or with their fast waves alone, which leaves "
        "edges and texture.",
        "Attention should go by shape and convolutions by texture, so that a ViT should lose less without fine detail "
        "(Park and Kim 2022; HDV-33).",
    ),
    "cue_conflict": Question(
        "robustness",
        "Do they go by shape or by texture?",
        "On images whose shape belongs to one class and whose texture to another, which of the two the answer follows.",
        "Attention is taken to be biased towards shape, convolution towards texture (Park and Kim 2022; HDV-33).",
    ),
    "occlusion": Question(
        "robustness",
        "How much of the image can they do without?",
        "Patches are masked at random, more and more of them, coarse and fine; all models miss the same ones.",
    ),
    "filters": Question(
        "weights",
        "What does the first layer look for?",
        "The principal components of the first layer's filters, as small pictures.",
        "In a ViT-L/32 they look like a basis of low frequencies, colours and edges (Dosovitskiy et al. 2021, Fig. 7; "
        "VIT-08).",
    ),
    "position_similarity": Question(
        "weights",
        "Has it learned where patches lie?",
        "The cosine between the position embedding of one patch and those of all others.",
        "Embeddings learned without any hint of two dimensions still have rows and columns (Dosovitskiy et al. 2021, "
        "Fig. 7; VIT-04).",
    ),
    "gates": Question(
        "weights",
        "Do heads go by place or by content?",
        "The gate of every head of gated positional attention: 1 looks at a place, 0 at content.",
        "Gates begin at 0.73 and fall in every layer; late layers end near 0 (d'Ascoli et al. 2021, Fig. 6; CVT-13, "
        "CVT-14).",
    ),
    "hessian": Question(
        "curvature",
        "How sharply is the loss curved?",
        "The largest eigenvalues of the Hessian, for one small batch after the other: how much the loss bends along "
        "the directions in which it bends most. Negative ones are directions in which it bends downwards.",
        "A ViT's are smaller than a ResNet's throughout training, and early on many are negative (Park and Kim 2022, "
        "Fig. 1c; HDV-09, HDV-10), on augmented images and with weight decay. On clean images others find the opposite "
        "order (Chen et al. 2022; HDV-51, X-04).",
    ),
    "landscape": Question(
        "curvature",
        "How fast does the loss rise around the trained weights?",
        "The loss on a plane through the trained weights, along two random directions in which every filter moves in "
        "proportion to its own length. What the weight decay adds is kept apart.",
        "A ViT's landscape is flatter than a ResNet's towards the border and steeper at the centre: at a tenth of the "
        "filters' lengths the loss of ViT-Ti rises by 0.30 and that of ResNet-50 by 0.21, at a half by 2.18 and 3.38 "
        "(Park and Kim 2022, Fig. 1a, and the numbers released with it; HDV-11, C5).",
    ),
    "trajectory": Question(
        "curvature",
        "Which way did the weights take?",
        "How far the weights were from where they ended, at the moments of a training that were kept, and in which "
        "direction, seen from the end.",
        "A smooth way was shown for ViT and an erratic one for ResNet in a first version of Park and Kim 2022; the "
        "authors have withdrawn the figure, which could not be reproduced (HDV-12, X-05).",
    ),
}


def question(name: str) -> Question:
    """The question of a probe; of one we do not know, its name."""
    return QUESTIONS.get(name) or Question("more", name.replace("_", " ").capitalize(), "")


def arranged(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by group, in the order of the page; groups without any are left out."""
    known, given = list(QUESTIONS), list(names)
    ordered = sorted(
        given,
        key=lambda name: known.index(name) if name in known else len(known) + given.index(name),
    )
    found = {group: [name for name in ordered if question(name).group == group] for group in GROUPS}
    return {group: inside for group, inside in found.items() if inside}
