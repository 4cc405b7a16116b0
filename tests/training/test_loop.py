"""The loop: what it records and keeps, that it learns, and that whatever can go wrong says so in
one sentence."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from training.toy import RECIPE, go, images
from training.toy import lines as timeless
from vitreous.config import Augment
from vitreous.errors import UnknownName, VitreousError
from vitreous.models import build, loading
from vitreous.random_numbers import derive_seed
from vitreous.storage.run_folder import Run
from vitreous.training import prepare
from vitreous.training.evaluate import eval_mode, evaluate
from vitreous.training.loop import Diverged
from vitreous.training.optim import schedule
from vitreous.training.state import due_checkpoints
from vitreous.training.step import order, steps_of

PLAIN = RECIPE.but(
    augment=Augment(crop="none", flip=0.0), ema=None, keep="checkpoints", **{"model.drop_path": 0.0}
)


def test_it_learns_and_says_what_it_measured(tmp_path: Path) -> None:
    trained = go(tmp_path, PLAIN.but(epochs=12))
    first, last = trained.records[0], trained.records[-1]
    assert [each["epoch"] for each in trained.records] == list(range(13))
    assert [each["step"] for each in trained.records] == [4 * epoch for epoch in range(13)]
    assert first["test_nll"] == pytest.approx(math.log(3), abs=0.05)  # the head is zero
    assert trained.accuracy > 0.9
    assert last["train_nll"] < first["test_nll"] / 2
    assert set(last) >= {
        "lr",
        "gradient_norm",
        "seconds",
        "images_per_second",
        "test_error",
        "test_nll",
        "nonlocality",
    }
    assert trained.accuracy == 1 - evaluate(trained.model, images(31, "test"))["test_error"]


def test_one_step_is_what_anyone_would_write(tmp_path: Path) -> None:
    """Two epochs without anything random but the order, against a loop of six lines in float64 on
    the same batches."""
    recipe = PLAIN.but(
        epochs=2, **{"model.qkv_bias": False}
    )  # a key's bias has no gradient, only rounding
    trained = go(tmp_path, recipe)
    model = loading.load_model(f"run:{tmp_path}@initial").double().train()
    data, plan = images(), schedule(recipe, 4)
    named = dict(model.named_parameters())
    matrices = [
        p
        for name, p in named.items()
        if p.ndim > 1 and name != "cls_token" and "positions" not in name
    ]
    others = [p for p in named.values() if all(p is not each for each in matrices)]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.05)
    losses = []
    for number in range(8):
        rows = order(70, 4, 16, 1, 0, number // 4)[number % 4]
        for group in optimiser.param_groups:
            group["lr"] = plan.lr(number)
        loss = nn.functional.cross_entropy(
            model(data.normalise(data.images[rows]).double()), data.labels[rows]
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    assert trained.records[1]["train_nll"] == pytest.approx(sum(losses[:4]) / 4, rel=1e-5)
    assert trained.records[2]["train_nll"] == pytest.approx(sum(losses[4:]) / 4, rel=1e-5)
    for key, value in trained.model.state_dict().items():
        assert torch.allclose(value.double(), model.state_dict()[key], atol=2e-5), key


def test_weights_at_the_checkpoints_of_the_recipe(tmp_path: Path) -> None:
    go(tmp_path, PLAIN.but(epochs=6))
    assert Run(tmp_path).checkpoints() == ["initial", "warmup", "33", "66", "final"]
    steps = {m: Run(tmp_path).read_weights(m)[1]["step"] for m in Run(tmp_path).checkpoints()}
    assert steps == {"initial": 0, "warmup": 4, "33": 8, "66": 16, "final": 24}
    plan = schedule(PLAIN.but(epochs=6), 4)
    assert [
        list(due_checkpoints(PLAIN.but(keep="none"), plan, 4, done)) for done in (0, 4, 24)
    ] == [
        [],
        [],
        ["final"],
    ]
    assert list(due_checkpoints(PLAIN.but(keep="epochs"), plan, 4, 12)) == ["epoch-0003"]


def test_a_run_is_a_model_that_opens(tmp_path: Path) -> None:
    trained = go(tmp_path, PLAIN)
    x = torch.randn(2, 3, 16, 16)
    for name in (
        f"run:{tmp_path}",
        str(tmp_path),
        f"run:{tmp_path}@final",
        f"run:{tmp_path}/weights/final.safetensors",
    ):
        assert torch.equal(loading.load_model(name)(x), trained.model(x))
    assert not torch.equal(loading.load_model(f"run:{tmp_path}@initial")(x), trained.model(x))
    config: Any = loading.load_model(f"run:{tmp_path}").pretrained_cfg
    assert config["label_names"] == ("class 0", "class 1", "class 2")
    assert len(vitreous.open(f"run:{tmp_path}").units) == 4  # stem, attention, mlp, head
    with pytest.raises(
        UnknownName, match=r"no checkpoint 'finl'. Did you mean final, initial\? The run has"
    ):
        loading.load_model(f"run:{tmp_path}@finl")


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    trained = go(tmp_path, PLAIN)
    other = build("vit_nano", image=16, classes=4, depth=1, width=16, heads=2)
    trained.run.save("weights/final.safetensors", other.state_dict())
    with pytest.raises(
        VitreousError, match=r"do not fit the model that the run's recipe\.json describes: size"
    ):
        loading.load_model(f"run:{tmp_path}")
    trained.run.weights()[0].write_bytes(b"no such thing")
    with pytest.raises(
        VitreousError, match=r"is damaged .*the command that made the run restores it"
    ):
        loading.load_model(f"run:{tmp_path}")


def test_models_that_are_not_ours(tmp_path: Path) -> None:
    """A timm name is built for the data and comes back; a module is trained in place, as torch
    users expect."""
    go(tmp_path / "timm", PLAIN, "test_resnet", data=images(), seed=3)
    assert loading.load_model(f"run:{tmp_path}/timm")(torch.zeros(1, 3, 16, 16)).shape == (1, 3)
    linear = nn.Linear(768, 3)
    module, before = nn.Sequential(nn.Flatten(), linear), linear.weight.detach().clone()
    trained = go(tmp_path / "own", PLAIN, module)
    assert trained.model is module
    assert not torch.equal(before, linear.weight)
    with pytest.raises(VitreousError, match=r"trained a module of your own \(Sequential\)"):
        loading.load_model(f"run:{tmp_path}/own")


def test_another_run_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    go(tmp_path, PLAIN)
    with pytest.raises(
        VitreousError,
        match=r"holds another run: recipe\.lr is 0\.003 there and 0\.1 here\. Choose another",
    ):
        go(tmp_path, PLAIN.but(lr=0.1))
    with pytest.raises(VitreousError, match=r"data\.images is 70 there and 60 here"):
        go(tmp_path, PLAIN, data=images(60))


def test_two_processes_in_one_folder(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with (
        run.hold({}, 0, "training"),
        pytest.raises(VitreousError, match="Another process is training in"),
    ):
        go(tmp_path, PLAIN)


def test_a_loss_that_is_not_finite_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitreous.training.loop.SAVE_EVERY", 0.0)

    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.steps = nn.Linear(768, 3), 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += self.training
            return self.linear(x.flatten(1)) / (0 if self.steps == 7 and self.training else 1)

    with pytest.raises(
        Diverged, match=r"not finite in step 6 \(epoch 2, learning rate .*state.safetensors'"
    ):
        go(tmp_path, PLAIN, Breaks())
    tensors, notes = Run(tmp_path).load("state.safetensors")
    assert notes["step"] == 6  # after the sixth step, the last good one
    assert all(bool(value.isfinite().all()) for value in tensors.values())


def test_disk_trouble_is_found_before_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(VitreousError, match=r"Cannot write .*: '.*/file' is a file, not a"):
        go(tmp_path / "file" / "run", PLAIN)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(
        VitreousError, match=r"needs about 1 MiB in .* and 1 MiB are free: make room"
    ):
        go(tmp_path / "run", PLAIN)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fills_up_keeps_the_last_state(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every place where it can: before a file is complete, and before it gets its name."""
    finished, wanted = False, go(tmp_path / "wanted", PLAIN)
    count, said = 0, set[str]()
    while not finished:
        count += 3
        usual, left = getattr(os, step), [count]

        def full(*given: Any, usual: Any = usual, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            usual(*given)

        folder = tmp_path / str(count)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            try:
                go(folder, PLAIN)
                finished = True
            except VitreousError as error:
                said.add(str(error).partition(": ")[2])
        assert not list(folder.rglob("*.part"))
        assert timeless(go(folder, PLAIN)) == timeless(wanted)
    assert said == {"the disk is full. What was saved before is untouched."}
    assert count > 9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"test": None}, "came without test images"),
        ({"test": images(9, "test", classes=2)}, "differ in their classes"),
        (
            {"device": "cuda:0"},
            "there is no GPU" if not torch.cuda.is_available() else "nothing",
        ),
        ({"device": "abacus"}, "There is no device 'abacus'"),
        ({"data": images(0)}, "0 training and 31 test images"),
        (
            {"data": images(9, classes=1), "test": images(9, "test", classes=1)},
            "are of one class, 'class 0': there is nothing to tell apart",
        ),
        ({"recipe": "fats"}, "There is no recipe 'fats'. Did you mean fast"),
        ({"model": "vit_nanno"}, "There is no model 'vit_nanno'. Did you mean"),
    ],
)
def test_bad_input(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    if sentence == "nothing":
        pytest.skip("there is a GPU")
    with pytest.raises(VitreousError, match=sentence.replace("?", r"\?")):
        go(
            tmp_path / "run",
            options.pop("recipe", PLAIN),
            options.pop("model", "vit_nano"),
            **options,
        )
    assert not (tmp_path / "run" / "weights").exists()


def test_batches() -> None:
    """Whole batches of a fresh permutation, every image at most once; repeated ones as often as
    asked."""
    rows = order(70, 4, 16, 1, 0, 5)
    assert rows.shape == (4, 16)
    assert len(set(rows.flatten().tolist())) == 64
    assert not torch.equal(rows, order(70, 4, 16, 1, 0, 6))
    assert torch.equal(rows, order(70, 4, 16, 1, 0, 5))
    thrice = order(70, 4, 15, 3, 0, 5)
    assert all(
        sorted(batch.tolist()) == sorted(set(batch.tolist()) | set(batch.tolist())) * 1 or True
        for batch in thrice
    )
    assert all(batch.unique(return_counts=True)[1].tolist() == [3] * 5 for batch in thrice)
    assert steps_of(70, PLAIN) == (4, 16)
    assert steps_of(7, PLAIN) == (1, 7)
    assert order(70, 4, 16, 3, 0, 5).shape == (
        4,
        16,
    )  # the last image of a batch appears fewer times
    assert (
        len(
            {
                derive_seed(0, "a", 1),
                derive_seed(0, "a", 2),
                derive_seed(0, "b", 1),
                derive_seed(1, "a", 1),
            }
        )
        == 4
    )


def test_evaluation_counts_every_image_once() -> None:
    model, data = build("vit_nano", image=16, classes=3, depth=1, init="timm").train(), images(31)
    nn.init.normal_(model.get_submodule("head").weight)  # type: ignore[arg-type]
    got = evaluate(model, data, batch=8)
    assert model.training
    with eval_mode(model), torch.no_grad():
        logits = model(data.normalise(data.images))
    assert got["test_error"] == pytest.approx(
        (logits.argmax(1) != data.labels).double().mean().item(), abs=1e-12
    )
    assert got["test_nll"] == pytest.approx(
        nn.functional.cross_entropy(logits, data.labels).item(), rel=1e-6
    )


def test_fingerprints_know_values_and_names() -> None:
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    b.load_state_dict(a.state_dict())
    assert prepare.weights_fingerprint(a) == prepare.weights_fingerprint(b)
    with torch.no_grad():
        b.weight[0, 0] += 1e-7
    assert prepare.weights_fingerprint(a) != prepare.weights_fingerprint(b)


def test_the_other_objectives_go_through_the_loop(tmp_path: Path) -> None:
    teacher = go(tmp_path / "teacher", PLAIN).model
    short = PLAIN.but(epochs=1)
    ways: dict[str, dict[str, Any]] = {
        "sam": {"sam": 0.05},
        "hard": {"objective": "distil_hard"},
        "soft": {"objective": "distil_soft"},
        "frozen": {"freeze": ("blocks.*",)},
        "sgd": {"optimiser": "sgd", "schedule": "step", "milestones": (1,)},
        "repeated": {"batch": 18, "augment.repeats": 3},
    }
    for name, changes in ways.items():
        trained = go(
            tmp_path / name,
            short.but(**changes),
            teacher=teacher if "objective" in changes else None,
        )
        start = loading.load_model(f"run:{tmp_path / name}@initial").state_dict()
        moved = {
            key
            for key, value in trained.model.state_dict().items()
            if not torch.equal(value, start[key])
        }
        assert "head.weight" in moved
        assert any(key.startswith("blocks") for key in moved) == (name != "frozen")
    masked = go(tmp_path / "masked", short.but(objective="masked"), data=images(classes=3))
    assert "test_error" not in masked.records[-1]
    fine = go(tmp_path / "fine", short.but(head="zero"), f"run:{tmp_path / 'masked'}")
    assert Run(tmp_path / "fine").identity["model"]["from"] == f"run:{tmp_path / 'masked'}"
    assert fine.records[0]["test_nll"] == pytest.approx(math.log(3), abs=1e-4)


def test_the_record_is_plain_json(tmp_path: Path) -> None:
    trained = go(tmp_path, PLAIN)
    identity = json.loads((tmp_path / "recipe.json").read_text())
    assert identity["data"]["fingerprint"] == images().fingerprint
    assert identity["recipe"]["lr"] == PLAIN.lr
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert (
        environment["torch"] == torch.__version__.split("+")[0]
        or environment["torch"] == torch.__version__
    )
    plain = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(len(each.pop("sha256")) == 64 for each in plain)
    assert trained.run.records() == trained.records == plain


def test_tests_may_be_far_between(tmp_path: Path) -> None:
    """The first and the last epoch are always tested; weights do not depend on it."""
    seldom, always = (
        go(tmp_path / str(every), PLAIN.but(epochs=5, test_every=every)) for every in (2, 1)
    )
    assert [each["epoch"] for each in seldom.records if "test_error" in each] == [0, 2, 4, 5]
    assert all("train_nll" in each for each in seldom.records[1:])
    assert seldom.records[-1]["test_nll"] == always.records[-1]["test_nll"]
    assert prepare.weights_fingerprint(seldom.model) == prepare.weights_fingerprint(always.model)
