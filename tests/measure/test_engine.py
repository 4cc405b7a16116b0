"""One pass: every image is seen once, however the images are divided, and whatever the models
are."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from measure.looks import Roll, Spread, cnn, images, seen_once, vit
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.memory import out_of_memory
from vitreous.measure.probe import Batch, Setting, Sums
from vitreous.measure.selection import choose_images
from vitreous.measure.streaming import Fetch, Pass
from vitreous.measure.subject import logits, subjects

ROLL = "roll"


def look(models: Any = None, data: Any = None, **options: Any) -> vitreous.Inspection:
    given = {"probes": [Roll(), Spread()], "shard": 40, "device": "cpu", **options}
    return vitreous.inspect(
        [vit(), cnn()] if models is None else models, images() if data is None else data, **given
    )


def numbers(found: vitreous.Inspection) -> np.ndarray:
    return found["spread"].table[["value", "low", "high"]].to_numpy()


def close(one: Sums, other: Sums) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(one[k], other[k], rtol=1e-10, atol=0) for k in one
    )


def passing(batch: int, shard: int = 40) -> Pass:
    setting = Setting(subjects([vit(), cnn()]), images())
    return Pass((Roll(), Spread()), setting, shard, batch)


def test_every_image_is_seen_once() -> None:
    found = look()
    assert seen_once(found[ROLL])
    assert found[ROLL].about["data"]["images"] == 90
    assert set(found[ROLL].table["model"]) == {"Transformer", "Convolutional"}


@pytest.mark.parametrize("batch", [1, 37, 40, 500])
def test_micro_batches_make_no_difference(batch: int) -> None:
    whole, parts = look(), look(batch=batch)
    assert seen_once(parts[ROLL])
    np.testing.assert_allclose(numbers(parts), numbers(whole), rtol=1e-10)


def test_sums_of_shards_are_those_of_one_pass() -> None:
    whole = passing(90, shard=90).shard(0)
    shards = passing(40)
    assert [shards.images(number) for number in range(shards.shards)] == [40, 40, 10]
    total = dict[str, Tensor]()
    for number in (2, 0, 1):
        for name, value in shards.shard(number).items():
            total[name] = total[name] + value if name in total else value
    assert close(total, whole)


def test_the_next_shard_is_launched_before_waiting_for_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the sums are the same, each with its own shard."""
    events: list[str] = []
    begin, expected = Pass.begin, dict(passing(40).stream(range(3)))

    def noted(self: Pass, number: int, *rest: Any) -> Fetch:
        events.append(f"begin {number}")
        begun = begin(self, number, *rest)

        def found() -> Sums:
            events.append(f"wait {number}")
            return begun()

        return found

    monkeypatch.setattr(Pass, "begin", noted)
    monkeypatch.setattr(Pass, "device", torch.device("cpu"))  # as if it were one
    sums = dict(passing(40).stream(range(3)))
    assert events == ["begin 0", "begin 1", "wait 0", "begin 2", "wait 1", "wait 2"]
    assert list(sums) == [0, 1, 2]
    assert all(sums[number].keys() == expected[number].keys() for number in expected)
    assert all(
        torch.equal(value, sums[number][name])
        for number in expected
        for name, value in expected[number].items()
    )


def test_the_order_of_calls() -> None:
    roll = Roll()
    look([vit()], probes=[roll], batch=25)
    shard = ["start", "Transformer 25 part", "Transformer 15 part"]
    assert roll.events == [*shard, *shard, "start", "Transformer 10 whole"]


@pytest.mark.parametrize("limit", [1, 7, 90, 1000, None, "all", "7", np.int64(7)])
def test_a_limit_of_images(limit: Any) -> None:
    found = look(limit=limit)
    assert seen_once(found[ROLL])
    wanted = 90 if limit in (None, "all") else int(limit)
    assert found["spread"].about["data"]["images"] == min(wanted, 90)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "ten", "", "-1", "2.5", [5], float("nan")])
def test_a_limit_is_a_number_of_images_or_all(limit: Any) -> None:
    for run in (vitreous.inspect, vitreous.analyse):
        with pytest.raises(VitreousError, match=r"limit=.* was asked for; it is at least one"):
            run("nano:vit", limit=limit)


def test_a_limit_is_class_balanced() -> None:
    chosen = choose_images(images(100, classes=5), "test", 10, (), 0)
    assert chosen.labels.bincount().tolist() == [2] * 5


def test_one_image_has_a_value_and_no_interval() -> None:
    table = look(limit=1)["spread"].table
    assert table["value"].notna().all()
    assert table[["low", "high"]].isna().all(axis=None)
    assert (table["n"] == 1).all()


def test_models_of_all_kinds_side_by_side() -> None:
    """Other sizes, other numbers of classes, one channel, an edited specimen, one model twice."""
    grey = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, 1, 1),
        nn.Flatten(),
        nn.Linear(256, 2),
    )
    own = vit()
    opened = vitreous.open(own)
    found = look(
        [own, own, vitreous.open(grey, image=16), opened.without("blocks.0.attn"), "nano:resnet"],
        images(20),
    )
    assert list(found.anatomies) == [
        "Transformer",
        "Transformer (2)",
        "Sequential",
        "Transformer (3)",
        "nano:resnet",
    ]
    assert seen_once(found[ROLL])
    table = found["spread"].table
    first, twice, edited = (
        table[table["model"] == f"Transformer{n}"]["value"].to_numpy() for n in ("", " (2)", " (3)")
    )
    assert np.array_equal(first, twice)
    assert not np.array_equal(first, edited)
    about = found["spread"].about["models"]
    assert about["Transformer (3)"]["edits"] == ["without blocks.0.attn"]
    assert about["Transformer (3)"]["fingerprint"] != about["Transformer"]["fingerprint"]
    assert about["Transformer (2)"]["fingerprint"] == about["Transformer"]["fingerprint"]


def test_a_dict_names_the_models() -> None:
    found = look({"before": vit(), "after": cnn()})
    assert list(found.anatomies) == ["before", "after"]


def test_a_name_that_is_taken_by_another_name() -> None:
    found = subjects([vit(), vit(), nn.Sequential(nn.Conv2d(3, 4, 3))][:2])
    assert [each.name for each in found] == ["Transformer", "Transformer (2)"]
    named = subjects({"a (2)": vit(), "a": vit()})
    assert [each.name for each in named] == ["a (2)", "a"]


def test_models_and_specimens_stay_as_they_are() -> None:
    model = cnn().train()
    specimen = vitreous.open(model)
    before = copy.deepcopy(model.state_dict())
    tapped = dict(specimen._tapped)
    look([model, specimen])
    assert model.training
    assert not specimen.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert next(specimen.parameters()).data_ptr() == next(model.parameters()).data_ptr()
    assert tapped.items() <= specimen._tapped.items()
    copy.deepcopy(model)
    copy.deepcopy(specimen)


def test_images_are_normalised_as_the_model_says() -> None:
    (subject,) = subjects("nano:vit")
    recipe = vitreous.data.load("world:shapes", split="train", size=8)
    assert subject.mean == pytest.approx(recipe.mean)
    pixels = recipe.images
    torch.testing.assert_close(subject.prepare(pixels), recipe.normalise(pixels))
    (edited,) = subjects(vitreous.open("nano:vit").without("attention"))
    assert (edited.mean, edited.std, edited.classes) == (subject.mean, subject.std, recipe.classes)


def test_outputs_of_every_form() -> None:
    scores = torch.randn(2, 7)
    assert logits(scores) is scores
    assert logits({"logits": scores, "loss": None}) is scores
    assert logits((scores, torch.zeros(2))) is scores
    assert logits({"last_hidden_state": torch.zeros(2, 3, 4)}) is None
    assert logits(torch.zeros(2, 3, 4)) is None
    assert logits(torch.zeros(2, 1)) is None
    assert logits(()) is None
    assert subjects(vit())[0].outputs == 5


def test_a_set_without_labels() -> None:
    found = look(data=images(classes=0))
    assert seen_once(found[ROLL])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"limit": 0}, "limit=0 was asked for; it is at least one image"),
        ({"batch": 0}, "batch=0 was asked for"),
        ({"shard": -1}, "shard=-1 was asked for"),
        ({"models": []}, "There is no model to inspect"),
        ({"models": 3.0}, "A model is a name, an nn.Module or a Specimen, and not 3.0"),
        ({"models": [3.0]}, "not float"),
        ({"models": "resnet17"}, "There is no model 'resnet17'. Did you mean resnet18"),
        ({"probes": []}, "There is nothing to measure"),
        ({"probes": "varince"}, "There is no probe 'varince'. Did you mean variance"),
        ({"probes": [Spread(), Roll(), Spread()]}, "The probe 'spread' was named twice"),
        ({"probes": [Spread]}, "is no probe: give a name"),
        (
            {"probes": {"variance": {"unbaised": False}}},
            "There is no option of variance 'unbaised'.",
        ),
        ({"data": "world:shape"}, "There is no synthetic dataset 'shape'. Did you mean shapes"),
        ({"data": images(0)}, "The dataset 'noise' is empty"),
        ({"device": "mps"}, "double precision, which the device 'mps' does not have"),
        ({"device": "gpu"}, "There is no device 'gpu'"),
    ],
)
def test_bad_input_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    given = {"models": vit(), "data": images(3), **options}
    with pytest.raises(VitreousError) as caught:
        look(given.pop("models"), given.pop("data"), **given)
    assert sentence in str(caught.value)


def test_options_reach_the_probe_and_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitreous.measure.registry.Registry.named", lambda self, name: Roll)
    found = look(probes={"roll": {"note": "said"}})
    assert found[ROLL].about["options"] == {"note": "said"}
    with pytest.raises(
        UnknownName, match=r"no option of roll 'notes'\. Did you mean note\? It has note\."
    ):
        look(probes={"roll": {"notes": "said"}})


def test_a_model_with_nan_outputs_is_named_with_the_unit() -> None:
    """Weights are finite, and still what it computes is not; nothing may be made of it silently."""
    model = cnn()
    with torch.no_grad():
        model.get_submodule("blocks.1.bn2").weight.fill_(1e308)  # type: ignore[operator]
    with pytest.raises(
        VitreousError,
        match=r"Convolutional gives NaN or infinite numbers, first after its unit 'blocks\.1'",
    ):
        look(model)


def test_nan_weights_are_refused() -> None:
    model = cnn()
    with torch.no_grad():
        next(model.parameters())[0] = torch.nan
    with pytest.raises(VitreousError, match="NaN or infinite"):
        look(model)


class Greedy(Roll):
    """Needs more memory than there is whenever it sees more than so many images."""

    name = ROLL
    room = 9
    error: BaseException = torch.OutOfMemoryError("CUDA out of memory")

    def update_output(self, *given: Any) -> Sums:
        if len(given[2]) > self.room:
            raise self.error
        return super().update_output(*given)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes. Error "
            "code 12"
        ),
    ],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_out_of_memory_halves_the_batch_size(
    error: BaseException,
    ahead: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    greedy = Greedy()
    greedy.error = error
    if ahead:  # as for a GPU
        monkeypatch.setattr(Pass, "device", torch.device("cpu"))
    with caplog.at_level(logging.WARNING, "vitreous"):
        found = look(probes=[greedy, Spread()])
    assert [each.args for each in caplog.records if "memory" in each.msg] == [(20,), (10,), (5,)]
    assert seen_once(found[ROLL])
    np.testing.assert_allclose(numbers(found), numbers(look()), rtol=1e-10)


def test_out_of_memory_while_preparing_the_next_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, expected = Pass._batch, dict(passing(40).stream(range(3)))
    failed: list[int] = []

    def greedy(self: Pass, rows: Tensor, full_shard: bool) -> Batch:
        if threading.current_thread() is not threading.main_thread():
            failed.append(len(rows))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return made(self, rows, full_shard)

    monkeypatch.setattr(Pass, "_batch", greedy)
    monkeypatch.setattr(Pass, "device", torch.device("cpu"))
    found = dict(passing(40).stream(range(3)))
    assert failed == [40, 10]  # the third was asked for before the second failed
    assert all(close(found[number], expected[number]) for number in expected)


def test_this_machines_out_of_memory_error_is_recognised() -> None:
    """What torch says here, when a tensor is larger than the address space."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 46)
    assert out_of_memory(caught.value)
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_other_errors_are_not_taken_for_out_of_memory() -> None:
    greedy = Greedy()
    greedy.error = RuntimeError("shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="shapes"):
        look(probes=[greedy])
    greedy.error, greedy.room = torch.OutOfMemoryError("CUDA out of memory"), 0
    with pytest.raises(torch.OutOfMemoryError):
        look(probes=[greedy])


def test_the_progress_bar_counts_every_image_once_after_out_of_memory() -> None:
    class Late(Greedy):
        """Memory runs out in the second model, when the first has passed."""

        def update_output(self, *given: Any) -> Sums:
            return (
                super().update_output(*given)
                if given[0].name == "Convolutional"
                else Roll.update_output(self, *given)
            )

    counted: list[int] = []
    passing = Pass((Late(),), Setting(subjects([vit(), cnn()]), images()), 40, 40)
    for number in range(passing.shards):
        passing.shard(number, counted.append)
    assert counted[:3] == [40, -40, 20]
    assert sum(counted) == 2 * 90
