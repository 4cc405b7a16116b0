"""Models of transformers whose default configuration is incomplete or too large, and what is said
of those that do not run on a batch of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from transformers import PretrainedConfig

COMPLETED: dict[str, dict[str, Any]] = {
    "BeitForSemanticSegmentation": {"out_indices": [3, 5, 7, 11]},
    "Data2VecVisionForSemanticSegmentation": {"out_indices": [3, 5, 7, 11]},
    "PPDocLayoutV2ForObjectDetection": {"class_thresholds": [0.5, 0.5], "class_order": [0, 1]},
}
"""What default configurations lack."""

SHAPES = {"PPOCRV5MobileRecForTextRecognition": (3, 96, 320)}
"""Lines of text are wide."""

VIDEO, PAIRS, TEXT = "takes video", "takes pairs of images", "needs text beside images"
PATCHES = "takes images that are cut into patches already"
WHY = {
    **dict.fromkeys(("TimesformerM", "TimesformerF", "VideoMAE", "Vivit", "XCLIP"), VIDEO),
    **dict.fromkeys(("EfficientLoFTR", "LightGlue", "SuperGlue"), PAIRS),
    **dict.fromkeys(
        ("BlipFor", "Kosmos2", "PPFormulaNetF", "PPFormulaNetModel", "Sam3LiteTextModel"), TEXT
    ),
    **dict.fromkeys(("Sam3Model", "VisionEncoderDecoder"), TEXT),
    **dict.fromkeys(("Inkling", "MiniCPM", "Molmo2", "PaddleOCR", "Siglip2"), PATCHES),
    "Dinat": "needs the package natten",
}
"""What is said of models that do not run on a batch of images, by the beginnings of their names."""


def _config(name: str, **words: Any) -> Callable[[], PretrainedConfig]:
    return lambda: getattr(transformers, f"{name}Config")(**words)


NARROW = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
}
SAM = {"num_hidden_layers": 2, "image_size": 256, "window_size": 8, "global_attn_indexes": [1]}
PROMPTS = {"image_size": 256}
LEVELS = [[64, 64], [32, 32], [16, 16]]
HIERA = {"image_size": [256, 256], "blocks_per_stage": [1, 1, 2, 1], "global_attention_blocks": [3]}
SAM2 = {
    "backbone_config": {"model_type": "sam2_hiera_det_model", **HIERA},
    "backbone_feature_sizes": LEVELS,
}
VIT3 = {
    **NARROW,
    "image_size": 224,
    "window_size": 4,
    "global_attn_indexes": [1],
    "pretrain_image_size": 112,
}
SAM3 = {
    "backbone_config": {"model_type": "sam3_vit_model", **VIT3},
    "backbone_feature_sizes": LEVELS,
}
REPVIT = {"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]}
EDGE = {
    "backbone_config": {
        "model_type": "timm_wrapper",
        "architecture": "repvit_m1",
        "num_classes": 2,
        "model_args": REPVIT,
    },
    "backbone_feature_sizes": LEVELS,
}
DINO = {"model_type": "dinov2", **NARROW, "num_hidden_layers": 4, "patch_size": 8, "image_size": 64}
FOUR = {"num_hidden_layers": 4, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
WINDOWED = {**NARROW, **FOUR, "image_size": 112, "num_windows": 2}
HEAD = {"upsample_out_channels": [32, 16], "conv_out_channels": [16, 16]}
SCALE = {"scale_conv_out_channels": [16, 8], "scale_final_hidden_sizes": [16, 16]}
SAPIENS = {
    **NARROW,
    "num_hidden_layers": 4,
    "image_size": 128,
    "num_key_value_attention_heads": 2,
    "num_first_full_attention_layers": 1,
    "num_last_full_attention_layers": 1,
}
RATIOS = {"long": 7, "mid": 5, "short": 3}
BANDS = {
    **{
        f"vertical_long_to_small_conv_{k}ratio": [[n, 1], [1, 1], [n // 2, 0]]
        for k, n in RATIOS.items()
    },
    **{
        f"horizontal_small_to_long_conv_{k}ratio": [[1, n], [1, 1], [0, n // 2]]
        for k, n in RATIOS.items()
    },
    **{
        f"symmetric_conv_long_{k}ratio": [[n, n], [1, 1], [n // 2, n // 2]]
        for k, n in RATIOS.items()
    },
    "reduce_channel": [1, 1, 0],
    "return_channel": [1, 1, 0],
}
TEXT_DETECTOR = {
    "intraclass_block_config": BANDS,
    "scale_factor_list": [1, 2, 4, 8],
    "kernel_list": [3, 2, 2],
}
LCNET = {
    "model_type": "pp_lcnet_v4",
    "out_features": FOUR["out_features"],
    "stem_channels": [3, 16, 24],
    "block_configs": [
        [[3, 24, 24, 1, True]],
        [[3, 24, 32, 2, False]],
        [[3, 32, 48, 2, True]],
        [[3, 48, 64, 2, False]],
    ],
}
GIVEN = {
    "DeepseekOcr2Vision": _config(
        "DeepseekOcr2Vision",
        sam_config={**SAM, "downsample_channels": [48, 64]},
        encoder_config={**NARROW, "num_key_value_heads": 4, "vocab_size": 16},
    ),
    "DepthPro": _config(
        "DepthPro",
        patch_size=64,
        image_model_config=DINO,
        patch_model_config=DINO,
        fov_model_config=DINO,
        intermediate_hook_ids=[3, 1],
        merge_padding_value=1,
    ),
    "EdgeTamModel": _config("EdgeTam", vision_config=EDGE, prompt_encoder_config=PROMPTS),
    "EdgeTamVision": _config("EdgeTamVision", **EDGE),
    "HieraForPreTraining": _config(
        "Hiera", depths=[1, 1, 2, 1], decoder_hidden_size=64, decoder_depth=2, decoder_num_heads=4
    ),
    "JanusVQVAE": _config(
        "JanusVQVAE", num_patches=4, num_embeddings=64, base_channels=32, latent_channels=32
    ),
    "Llama4Vision": _config(
        "Llama4Vision", **{**NARROW, "intermediate_size": 256, "image_size": 84}
    ),
    "LwDetr": _config(
        "LwDetr",
        backbone_config={
            "model_type": "lw_detr_vit",
            **NARROW,
            **FOUR,
            "image_size": 128,
            "window_block_indices": [0, 2],
        },
        projector_scale_factors=[1.0],
        decoder_layers=2,
        num_queries=20,
    ),
    "PPFormulaNetVision": _config("PPFormulaNetVision", **SAM),
    "PPOCRV5ServerDet": _config("PPOCRV5ServerDet", **TEXT_DETECTOR),
    "PPOCRV6MediumDet": _config("PPOCRV6MediumDet", **TEXT_DETECTOR, backbone_config=LCNET),
    "PPOCRV6SmallDet": _config(
        "PPOCRV6SmallDet", backbone_config=LCNET, layer_list_out_channels=[24, 32, 48, 64]
    ),
    "RfDetrDinov2": _config("RfDetrDinov2", **WINDOWED),
    "RfDetr": _config(
        "RfDetr",
        backbone_config={"model_type": "rf_detr_dinov2", **WINDOWED},
        decoder_layers=2,
        num_queries=20,
    ),
    "SamModel": _config("Sam", vision_config=SAM, prompt_encoder_config=PROMPTS),
    "SamHQModel": _config("SamHQ", vision_config=SAM, prompt_encoder_config=PROMPTS),
    "Sam2HieraDet": _config("Sam2HieraDet", **HIERA),
    "Sam2Model": _config("Sam2", vision_config=SAM2, prompt_encoder_config=PROMPTS),
    "Sam2Vision": _config("Sam2Vision", **SAM2),
    "Sam3Tracker": _config(
        "Sam3Tracker",
        vision_config={"model_type": "sam3_vision_model", **SAM3},
        prompt_encoder_config={"image_size": 224},
    ),
    "Sam3ViT": _config("Sam3ViT", **VIT3),
    "Sam3Vision": _config("Sam3Vision", **SAM3),
    "Sapiens2For": _config("Sapiens2", **SAPIENS, head_config=HEAD),
    "Sapiens2ForImageMatting": _config("Sapiens2", **SAPIENS, head_config=HEAD, num_labels=4),
    "Sapiens2ForPointmap": _config("Sapiens2", **SAPIENS, head_config={**HEAD, **SCALE}),
    "TimmBackbone": _config("TimmBackbone", backbone="resnet18", use_pretrained_backbone=False),
    "UVDocModel": _config(
        "UVDoc",
        backbone_config={
            "model_type": "uvdoc_backbone",
            "out_features": [f"stage{n}" for n in range(1, 7)],
        },
    ),
    "VitMatte": _config(
        "VitMatte",
        backbone_config={
            "model_type": "vitdet",
            **NARROW,
            **FOUR,
            "out_features": ["stage4"],
            "num_channels": 4,
        },
        hidden_size=64,
        convstream_hidden_sizes=[48, 96, 192],
        fusion_hidden_sizes=[256, 128, 64, 32],
    ),
}
"""Small configurations of what the rules of `transformers_models.py` do not make smaller, or whose
defaults are incomplete, by the beginnings of their names."""
