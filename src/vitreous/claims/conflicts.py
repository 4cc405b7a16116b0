"""Where the papers contradict each other, their own code, or what is commonly read into them, and what is done about
it.

Each says in a sentence what does not agree, which claims and systems of the catalogue it is about, and how the package
treats it. Claims that are disputed are judged like all others; their conflicts are shown beside the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitreous.errors import UnknownName


@dataclass(frozen=True)
class Conflict:
    """Things that do not agree."""

    id: str
    sentence: str
    concerns: tuple[str, ...]
    """Ids of claims (`VIT-11`), systems (`A4.18`), tables (`C4`) and recipes (`D1`)."""
    treated: str
    """What the package does about it."""


def _conflict(number: int, sentence: str, concerns: str, treated: str) -> Conflict:
    return Conflict(f"X-{number:02d}", sentence, tuple(concerns.split()), treated)


CONFLICTS = (
    _conflict(
        1,
        "Dosovitskiy et al. find that ViTs overfit small data more than ResNets do, Park and Kim that they do not; the "
        "former trained with little regularisation and stopped early, the latter with strong augmentation.",
        "VIT-11 HDV-02 HDV-04",
        "Trained with and without augmentation on few and on all images: overfitting is expected without only.",
    ),
    _conflict(
        2,
        "Mean pooling is no worse than a class token once the learning rate suits it (Dosovitskiy et al.), equally "
        "accurate but without tokens that keep their place (Raghu et al.), or better and with a more convex loss "
        "(Park and Kim).",
        "VIT-07 SLC-21 SLC-25 HDV-13",
        "Both are trained at several learning rates; accuracy, curvature and localisation are reported together.",
    ),
    _conflict(
        3,
        "Smaller patches do better throughout on JFT (Dosovitskiy et al.), and are best at a middle size on CIFAR "
        "(Park and Kim).",
        "VIT-21 HDV-19",
        "Patch size is swept; what data are at hand decides.",
    ),
    _conflict(
        4,
        "Park and Kim find the loss of ViTs flatter than that of ResNets, on augmented images and with weight decay; "
        "Chen et al. (2022) find it sharper, on clean images; near the optimum the published landscapes agree with the "
        "latter.",
        "HDV-09 HDV-11 HDV-51",
        "Curvature is measured both ways, and its sign is taken for a property of the protocol.",
    ),
    _conflict(
        5,
        "The author withdrew the figure of training trajectories in polar coordinates, and the final paper has it no "
        "more.",
        "HDV-12",
        "Computed and labelled as withdrawn; it is evidence for nothing.",
    ),
    _conflict(
        6,
        "Relative positions are commonly read as one vector for every pair of patches; the paper has one for every "
        "offset along the sequence, added to the logits before the softmax.",
        "A2.06",
        "Offsets along the sequence are the default, one for every pair is an option.",
    ),
    _conflict(
        7,
        "Attention distance is commonly written with a division by the square of the number of tokens; rows of "
        "attention sum to one already, so their number is the divisor, and the unit is pixels.",
        "A4.18",
        "Divided by the number of queries; uniform attention gives the mean distance of two patches.",
    ),
    _conflict(
        8,
        "The hybrid is commonly said to take its 14 x 14 map from stage 4 of ResNet-50, which has 7 x 7; it comes from "
        "a variant whose stage 3 has the blocks of stage 4 as well.",
        "A1.12",
        "Both are there.",
    ),
    _conflict(
        9,
        "Hybrids are commonly said to win with few data and to be overtaken with more; the figure has computing on its "
        "axis, and the advantage merely vanishes.",
        "VIT-09",
        "Judged against computing: length of training and size of the model.",
    ),
    _conflict(
        10,
        "Attention maps of the output are commonly described as a product over layers, heads and queries; they are the "
        "matrix product over layers of the mean over heads, skips included.",
        "A4.27 VIT-16",
        "Rollout is that product.",
    ),
    _conflict(
        11,
        "Attention distance is sometimes explained as similarity of queries against distance; it is the distance in "
        "pixels, weighted with attention.",
        "A4.18",
        "Weighted with attention.",
    ),
    _conflict(
        12,
        "That local heads disappear with few data is commonly told as a rule; the paper's own appendix has a small ViT "
        "that keeps them on ImageNet.",
        "SLC-11 SLC-12",
        "Judged for two sizes: no effect is expected of the small one.",
    ),
    _conflict(
        13,
        "A pane about probes of tokens is commonly read as different shares of the tokens, and is the mean over probes "
        "of single tokens; the paper's appendix has left and right exchanged.",
        "SLC-22 SLC-23 SLC-24",
        "Probes of the class token, of the mean, and of single tokens are kept apart.",
    ),
    _conflict(
        14,
        "Removing a skip is commonly read as something done to a trained model; the paper trained models without the "
        "skips of one block.",
        "SLC-17",
        "Models are trained without; taking a skip out of a trained one is a lesion, and something else.",
    ),
    _conflict(
        15,
        "CKA is commonly defined with the biased estimate of HSIC; the experiments use the unbiased one, minibatch by "
        "minibatch.",
        "A4.11",
        "The unbiased one is the default, the biased one an option.",
    ),
    _conflict(
        16,
        "A word in the text of Raghu et al. has been taken for LSTM; it is not about recurrent networks.",
        "",
        "Nothing needs to be done.",
    ),
    _conflict(
        17,
        "Batches of 512 and a rate of 4e-4 are commonly given as ConViT's recipe; they belong to the wider models "
        "only, and all others have DeiT's 1024 and 5e-4.",
        "D2",
        "The recipe is DeiT's; `deit_plus` and `convit_plus` are those of the wider models.",
    ),
    _conflict(
        18,
        "ConViT's positional embedding is commonly said to be shared by all heads; the offsets are, and what each head "
        "makes of them is its own.",
        "A2.13 A2.14 A2.15 A2.16 A2.17",
        "Offsets are one table, and every head has its own vector.",
    ),
    _conflict(
        19,
        "Text, captions and tables of the ConViT paper give slightly different accuracies, and its text on the "
        "ablation confuses two rows.",
        "CVT-02 CVT-04 CVT-17 CVT-18 CVT-19 CVT-20 CVT-21 CVT-22 CVT-23",
        "Numbers are those of the tables.",
    ),
    _conflict(
        20,
        "The text of ConViT has 16 x 16 patches of 14 pixels, its code 14 x 14 patches of 16; the nonlocality of an "
        "untrained model fits the code.",
        "A1.18",
        "As in the code.",
    ),
    _conflict(
        21,
        "The example in the ConViT paper has heads look one patch aside; its code has them look half a patch aside, "
        "so that each divides its attention among four.",
        "A2.15",
        "As in the code; a whole patch is an option.",
    ),
    _conflict(
        22,
        "ConViT's own record of nonlocality feeds the patch embeddings to every layer, so that its figure may not show "
        "what the layers really attend to.",
        "CVT-08 CVT-09 CVT-10 CVT-11 CVT-12",
        "Recorded both ways and compared.",
    ),
    _conflict(
        23,
        "The normalisation in the formula of gated attention does nothing: a mixture of two distributions is one.",
        "A2.18",
        "Left out; rows sum to one all the same.",
    ),
    _conflict(
        24,
        "A neighbourhood of 5 x 5 is commonly called the best; by test error it is 3 x 3, by training loss and "
        "convexity 5 x 5.",
        "HDV-15 HDV-16",
        "All three are reported.",
    ),
    _conflict(
        25,
        "NEP is sometimes said to be a share of samples; it is the share of eigenvalues that are negative.",
        "A4.03",
        "A share of eigenvalues.",
    ),
    _conflict(
        26,
        "More heads are commonly read as a stronger inductive bias; the paper argues that wide networks have a more "
        "convex loss.",
        "HDV-23",
        "The number of heads is swept; what explains its effect is left open.",
    ),
    _conflict(
        27,
        "Large models are said to have a flat loss early and a sharp one; both hold: flatter near by early on, sharper "
        "on the whole.",
        "HDV-25",
        "Near and far are told apart.",
    ),
    _conflict(
        28,
        "Attention is commonly said to reduce high frequencies always; in the paper's figure 9 of 12 layers do, and "
        "the first three MLPs reduce them, too.",
        "HDV-26 HDV-27 HDV-28",
        "Judged on the share of layers.",
    ),
    _conflict(
        29,
        "That convolutions amplify high frequencies is mostly what happens between stages, where the highest frequency "
        "changes its meaning with the resolution; within stages little changes.",
        "HDV-29",
        "Compared at equal cycles an image as well.",
    ),
    _conflict(
        30,
        "The caption of a figure of Park and Kim defines relative amplitude wrongly, as its author says: it is "
        "relative to frequency zero, at each frequency.",
        "A4.07",
        "Relative to frequency zero.",
    ),
    _conflict(
        31,
        "Park and Kim's configuration has the strengths of mixup and CutMix the other way round than DeiT.",
        "D1 D2",
        "Each recipe keeps its own.",
    ),
    _conflict(
        32,
        "Park and Kim's landscapes add norms, not squared norms, as weight decay, which then is larger than the loss; "
        "and decoupled decay is no part of any loss.",
        "A4.05",
        "Loss, squared norms and norms are kept apart, so that either can be drawn.",
    ),
    _conflict(
        33,
        "The default of AlterNet's code is the network for ImageNet; the figure for CIFAR has attention in other "
        "places and windows of 4.",
        "A1.14",
        "Each is the default for images of its size.",
    ),
    _conflict(
        34,
        "A class called ConViT in Park and Kim's code is another model than d'Ascoli et al.'s.",
        "A1.13",
        "ConViT is d'Ascoli et al.'s.",
    ),
    _conflict(
        35,
        "Attention is sometimes written without the transpose of the keys, which is a misprint.",
        "",
        "Queries times transposed keys.",
    ),
    _conflict(
        36,
        "Park and Kim take the block structure of similarities for a property of models with stages; Raghu et al. find "
        "it in a ViT without skips.",
        "HDV-39 SLC-17",
        "Both are judged.",
    ),
    _conflict(
        37,
        "Looking far hinders learning (Park and Kim), is a strength of ViTs (Dosovitskiy et al., Raghu et al.), or is "
        "good in late layers and bad in early ones (d'Ascoli et al.).",
        "HDV-15 SLC-09 CVT-12",
        "Attention distance is reported with accuracy.",
    ),
    _conflict(
        38,
        "Accuracies of one model differ slightly from figure to figure of Park and Kim, as other trainings and "
        "variants were used.",
        "C4",
        "A difference of half a point between figures is no finding.",
    ),
)


def concerning(claim_id: str) -> tuple[Conflict, ...]:
    """What does not agree about a claim."""
    return tuple(conflict for conflict in CONFLICTS if claim_id.upper() in conflict.concerns)


def conflict(id: str) -> Conflict:
    """By id, however it is written."""
    known = {each.id: each for each in CONFLICTS}
    if (wanted := id.upper()) not in known:
        raise UnknownName("conflict", id, known, "They go from X-01 to X-38.")
    return known[wanted]
