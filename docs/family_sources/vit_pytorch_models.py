"""Every image model of vit-pytorch, small. It is no dependency: install it for the moment, beside
everything else:

uv pip install --target /tmp/vit-pytorch --no-deps vit-pytorch einops
PYTHONPATH=/tmp/vit-pytorch python docs/generate_families.py --only vit-pytorch
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import version
from typing import Any

from torch import nn

LIBRARY = f"vit-pytorch {version('vit-pytorch')}"
SIDE = 64
USUAL: dict[str, Any] = {
    "image_size": SIDE, "img_size": SIDE, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2,
    "heads": 2, "dim_head": 16, "mlp_dim": 64, "cls_depth": 1, "dropout": 0.0, "ndim": 2,
    "input_shape": (SIDE, SIDE), "embedding_dim": 32,
}  # fmt: skip
STAGES4 = {"dim": (32, 48, 64, 64), "depth": (1, 1, 1, 1)}

MODELS: dict[str, dict[str, Any]] = {
    "ats_vit.ViT": {"max_tokens_per_depth": (32, 16)},
    "attn_residual_with_dca_simple_vit.SimpleViT": {},
    "cait.CaiT": {},
    "cct.CCT": {
        "num_layers": 2,
        "num_heads": 2,
        "n_conv_layers": 1,
        "kernel_size": 3,
        "stride": 2,
        "padding": 1,
    },
    "cross_vit.CrossViT": {
        "sm_dim": 32,
        "lg_dim": 48,
        "sm_patch_size": 8,
        "lg_patch_size": 16,
        "depth": 1,
    },
    "crossformer.CrossFormer": {
        **STAGES4,
        "local_window_size": 2,
        "global_window_size": (4, 2, 2, 1),
    },
    "cvt.CvT": {"s3_depth": 2},
    "deepvit.DeepViT": {},
    "distill.DistillableViT": {},
    "distill.DistillableT2TViT": {},
    "distill.DistillableEfficientViT": {},
    "efficient.ViT": {},
    "jet_vit.JetViT": {},
    "jumbo_vit.JumboViT": {},
    "learnable_memory_vit.ViT": {},
    "learnable_memory_vit.Adapter": {},
    "levit.LeViT": {"dim": (32, 48, 64), "heads": (2, 2, 2), "mlp_mult": 2},
    "local_vit.LocalViT": {},
    "look_vit.LookViT": {
        "patch_size": 16,
        "highres_patch_size": 8,
        "heads": 2,
        "cross_attn_heads": 2,
    },
    "looped_vit.LoopedViT": {
        "pre_loop_depth": 1,
        "num_looped_blocks": 1,
        "post_loop_depth": 1,
        "loop_depth": 2,
    },
    "max_vit.MaxViT": {"depth": (1, 1), "window_size": 4, "dim_conv_stem": 16},
    "max_vit_with_registers.MaxViT": {"depth": (1, 1), "window_size": 4, "dim_conv_stem": 16},
    "mobile_vit.MobileViT": {
        "image_size": (SIDE, SIDE),
        "dims": [24, 32, 40],
        "depths": (1, 1, 1),
        "patch_size": (2, 2),
        "channels": [8, 16, 24, 24, 32, 32, 40, 40, 48, 48, 96],
    },
    "mp3.ViT": {},
    "nest.NesT": {"num_hierarchies": 2, "block_repeats": (1, 1)},
    "normalized_vit.nViT": {},
    "parallel_vit.ViT": {},
    "pit.PiT": {"depth": (1, 1)},
    "regionvit.RegionViT": {**STAGES4, "window_size": 2},
    "rvt.RvT": {},
    "scalable_vit.ScalableViT": {
        "depth": (1, 1),
        "heads": (2, 2),
        "reduction_factor": (4, 2),
        "window_size": (4, None),
    },
    "sep_vit.SepViT": {"depth": (1, 1), "heads": (2, 2)},
    "simple_flash_attn_vit.SimpleViT": {},
    "simple_uvit.SimpleUViT": {},
    "simple_vit.SimpleViT": {},
    "simple_vit_attn_residual.SimpleViTAttnResidual": {},
    "simple_vit_orthog_residual_update.SimpleViT": {},
    "simple_vit_with_fft.SimpleViT": {"freq_patch_size": 8},
    "simple_vit_with_hyper_connections.SimpleViT": {"num_residual_streams": 2},
    "simple_vit_with_patch_dropout.SimpleViT": {},
    "simple_vit_with_qk_norm.SimpleViT": {},
    "simple_vit_with_register_tokens.SimpleViT": {},
    "simple_vit_with_relative_proj_pos_bias.SimpleViT": {},
    "simple_vit_with_sparse_gating.SimpleViTWithSparseGating": {},
    "simple_vit_with_specialized_cls.SimpleViT": {},
    "simple_vit_with_value_residual.SimpleViT": {},
    "t2t.T2TViT": {},
    "twins_svt.TwinsSVT": {
        "s1_local_patch_size": 4,
        "s2_local_patch_size": 4,
        "s3_local_patch_size": 2,
        "s3_depth": 1,
        "s4_local_patch_size": 1,
        "s4_depth": 1,
        "s3_global_k": 2,
        "s4_global_k": 1,
        "s2_global_k": 4,
    },
    "vat.ViT": {},
    "vat_siglip.SigLIP": {},
    "vit.ViT": {},
    "vit_5.ViT": {},
    "vit_detpool.ViTDetPool": {},
    "vit_for_small_dataset.ViT": {},
    "vit_nd.ViTND": {},
    "vit_nd_pope.ViTND": {},
    "vit_nd_rotary.ViTND": {},
    "vit_with_decorr.ViT": {},
    "vit_with_keel_post_ln.ViT": {},
    "vit_with_patch_dropout.ViT": {},
    "vit_with_patch_merger.ViT": {"patch_merge_layer": 1, "depth": 3},
    "wwt.WWT": {"num_slots": 4},
    "xcit.XCiT": {},
}
"""What differs from the usual sizes. Video, 1-D and list-of-images models (NaViT) and trainers
(MAE, DINO) are not models of image batches."""


SIDES = {"sep_vit.SepViT": 112}  # its windows are 7 wide whatever it is told


def names() -> list[str]:
    return list(MODELS)


def label(name: str) -> str:
    return name


def build(name: str) -> tuple[nn.Module, tuple[int, int, int] | None]:
    """The model and its image size, which most of them keep to themselves."""
    module, _, kind = name.partition(".")
    cls = getattr(import_module(f"vit_pytorch.{module}"), kind)
    side = SIDES.get(name, SIDE)
    inner = _inner(name)
    if inner is not None:
        return cls(**inner), (3, side, side)
    parameters: set[str] = set()
    for base in cls.__mro__:  # distillable models hand everything on to their parent
        if "__init__" in vars(base):
            parameters |= set(inspect.signature(base.__init__).parameters)
    usual = {word: value for word, value in USUAL.items() if word in parameters}
    given = {**usual, **MODELS[name]}
    return cls(**given), (3, side, side)


def _inner(name: str) -> dict[str, Any] | None:
    """Arguments of the models that are made from another one."""
    from vit_pytorch.vit import Transformer

    if name in ("efficient.ViT", "distill.DistillableEfficientViT"):
        words = ("image_size", "patch_size", "num_classes", "dim")
        return {
            **{word: USUAL[word] for word in words},
            "transformer": Transformer(32, 2, 2, 16, 64),
        }
    if name == "learnable_memory_vit.Adapter":
        return {"vit": build("learnable_memory_vit.ViT")[0], "num_classes": 4}
    return None
