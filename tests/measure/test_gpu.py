"""What only a GPU can show; skipped elsewhere. The mathematics is the CPU's, which the other tests
check."""

from __future__ import annotations

import pytest
import torch

import vitreous
from measure.looks import Roll, Spread, cnn, images, seen_once, vit
from vitreous.devices import to_device, to_memory
from vitreous.measure.curvature.loss import Hessian, weights
from vitreous.measure.probe import Setting
from vitreous.measure.streaming import Pass
from vitreous.measure.subject import subjects

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_transfers_to_and_from_a_busy_gpu() -> None:
    """What is sent is used, and what is fetched is read, only when it is there."""
    gpu = torch.device("cuda")
    for turn in range(20):
        busy = torch.randn(4096, 4096, device=gpu)
        sent = to_device(torch.full((1 << 22,), turn, dtype=torch.uint8), gpu)
        for _ in range(3):
            busy = busy @ busy / 64
        doubled = sent().double() * 2
        fetched = to_memory(doubled)
        del doubled
        torch.full(
            (1 << 22,), -1.0, dtype=torch.float64, device=gpu
        )  # where it was, if that were free
        assert torch.equal(fetched(), torch.full((1 << 22,), 2.0 * turn, dtype=torch.float64))


def test_sums_are_those_of_a_cpu() -> None:
    def sums(device: str) -> dict[str, torch.Tensor]:
        setting = Setting(subjects([vit(), cnn()], device=torch.device(device)), images())
        total: dict[str, torch.Tensor] = {}
        for _, found in Pass((Roll(), Spread()), setting, 20, 20).stream(range(5)):
            total = {name: value + total.get(name, 0) for name, value in found.items()}
        return total

    ours, theirs = sums("cuda"), sums("cpu")
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6) for name in theirs)


def test_recorded_products_are_those_of_a_cpu() -> None:
    """The first product is plain, the second is recorded, the others are replayed."""
    for model in (vit(), cnn()):
        shown = torch.randn(1, 4, 3, 16, 16, dtype=torch.float64)
        targets = torch.tensor([[0, 1, 2, 0]])
        products = {}
        for device in ("cuda", "cpu"):
            specimen = vitreous.open(model.to(device), image=16)
            hessian = Hessian(
                specimen, weights(specimen), shown.to(device), targets.to(device), at_once=4
            )
            assert hessian.graph is not None
            generator = torch.Generator().manual_seed(0)
            along = torch.randn(4, 1, sum(hessian.sizes), generator=generator).to(
                hessian.parts[0][0]
            )
            products[device] = torch.stack([hessian(each) for each in along]).cpu()
            if hessian.recorder is not None:
                assert hessian.recorder.recording is not None
        assert torch.allclose(products["cuda"], products["cpu"], rtol=1e-8, atol=1e-10)


def test_every_image_passes_once_and_outputs_that_are_not_finite_are_an_error() -> None:
    assert seen_once(vitreous.inspect([vit()], images(), [Roll()], shard=20, device="cuda")["roll"])
    broken = cnn()
    with torch.no_grad():
        broken.get_submodule("blocks.1.bn2").weight.fill_(1e308)  # type: ignore[operator]
    with pytest.raises(vitreous.VitreousError, match=r"first after its unit 'blocks\.1'"):
        vitreous.inspect([broken], images(), [Roll()], shard=20, device="cuda")
