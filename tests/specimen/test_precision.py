"""A specimen in another precision, edits included; the model keeps its own."""

from __future__ import annotations

import copy

import torch
from torch import nn

import vitreous
from specimen.surgery import attention_by, forward, same
from specimen.toys import (
    WIDTH,
    Block,
    Transformer,
    part,
    pictures,
    settled,
)
from specimen.zoo import build, images


def test_precision_changes_for_the_specimen_alone() -> None:
    model = settled(Transformer(Block(), Block(), cls=True))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    mine = nn.Linear(WIDTH, WIDTH)
    specimen = vitreous.open(model, image=16).with_branch("blocks.0.mlp", mine).to(torch.float64)
    edited = specimen.with_attention("blocks.1.attn", "uniform").without("blocks.0.attn")
    wide, wider = copy.deepcopy(model).double(), copy.deepcopy(mine).double()
    forward(lambda block, x: x + wider(x))(part(wide, "blocks.0"))
    attention_by(lambda value: torch.full((17, 17), 1 / 17, dtype=torch.float64))(
        part(wide, "blocks.1.attn")
    )
    with torch.no_grad():
        given, wanted = edited(pictures().double()), wide(pictures().double())
    assert given.dtype == torch.float64
    torch.testing.assert_close(given, wanted, rtol=1e-6, atol=1e-7)
    assert mine.weight.dtype == torch.float32
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, before[name])


def test_tables_that_the_graph_makes_follow_the_precision() -> None:
    """ConViT computes its table of offsets as it runs, in the precision of its weights."""
    # A fresh one: once it has run, it keeps its table in the precision of that run.
    model = build("convit")
    specimen = vitreous.open(model)
    batch = images(specimen).double()
    wide = copy.deepcopy(specimen).to(torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(
            wide(batch), copy.deepcopy(model).double()(batch), rtol=1e-9, atol=1e-10
        )
        back = wide.to(torch.float32)(batch.float())
        same(back, model(batch.float()))
