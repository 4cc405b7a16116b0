"""Put one model through everything the page reports, each in a process of its own with a limit on
time and memory."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import resource
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vitreous
from vitreous.specimen.inputs import image_shape
from vitreous.specimen.specimen import Specimen

TOLERANCE = 1e-4
SECONDS = 120
"""Of processor time, so that a busy machine does not make a model fail."""
MEMORY = 16 * 2**30


@dataclass
class Row:
    """What was found about one model."""

    name: str
    label: str
    image: list[int] = field(default_factory=list)
    runs: bool = False
    opened: bool = False
    blocks: bool = False
    """Whether it was opened by its blocks, because its graph cannot be read."""
    equal: bool | None = None
    difference: float | None = None
    attention: list[int] | None = None
    """Attention products with probabilities in sight, and all there are; None for a model
    without."""
    units: dict[str, int] = field(default_factory=dict)
    reach: list[str] = field(default_factory=list)
    stages: int = 0
    rows: float | None = None
    """How far the sums of the rows of attention are from one, at most, where they are
    probabilities."""
    lesion: str = ""
    change: float | None = None
    """By how much the output changes without the unit in the middle."""
    seconds: float | None = None
    reason: str = ""

    @property
    def complete(self) -> bool | None:
        return None if self.attention is None else self.attention[0] == self.attention[1]


class PairSoftmax(TorchDispatchMode):
    """Finds softmaxes over products of two activations, and fused attention: what a model attends
    with, found without Vitreous. Weights that no image has a part in are left out, and what the
    output does not depend on."""

    SOFTMAX = ("_softmax", "_safe_softmax")
    FUSED = (
        "_scaled_dot_product",
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
    )
    PRODUCTS = ("bmm", "baddbmm")
    ENDS = (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "convolution",
        "native_layer_norm",
        "sum",
        "mean",
        *SOFTMAX,
    )
    COPIES = ("repeat", "clone", "copy", "_to_copy", "expand")
    SHAPES = (
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_empty",
        "new_zeros",
        "new_ones",
        "new_full",
    )
    """Made like another tensor, without its values."""

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.weights = {id(t) for t in [*model.parameters(), *model.buffers()]}
        self.logits: set[int] = set()
        self.spent: set[int] = set()
        """What weights of attention went into, up to the next layer: a product with it is none of
        queries and keys."""
        self.seen = places([images])
        """Memory that the images have a part in."""
        self.steps: list[tuple[set[int], set[int], bool]] = []
        """What each operation reads and writes, and whether it attends."""
        self.kept: list[Any] = []  # so that no id is used again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.kept.extend([*given, *made])
        fused = name.startswith(self.FUSED)
        attends = fused or (name in self.SOFTMAX and id(given[0]) in self.logits)
        asks = places(given[: 2 if fused else 1])
        reads, writes = places(given), places(made)
        self.steps.append((reads, writes, bool(attends and asks & self.seen)))
        if reads & self.seen and name not in self.SHAPES:
            self.seen |= writes
        learned = any(id(t) in self.weights for t in given[-2:])
        product, ends = name in self.PRODUCTS and not learned, name in self.ENDS
        from_logits, from_spent = (
            any(id(t) in ids for t in given) for ids in (self.logits, self.spent)
        )
        if (
            name in self.SOFTMAX
            or (product and (from_logits or from_spent))
            or (from_spent and not ends)
        ):
            self.spent |= {id(t) for t in made}
        elif product or (from_logits and (learned or not ends)):  # learned: heads mixed
            self.logits |= {id(t) for t in made}
        view = func.is_view or name in self.COPIES
        if given and view and all(id(t) in self.weights for t in given):
            self.weights |= {id(t) for t in made}
        return result

    def count(self, output: Any) -> int:
        """Those that this output depends on."""
        needed, count = places(tree_leaves(output)), 0
        for reads, writes, attends in reversed(self.steps):
            if writes & needed:
                needed |= reads
                count += attends
        return count


def places(tensors: Any) -> set[int]:
    """The memory of these tensors: a view has its tensor's."""
    return {t.untyped_storage()._cdata for t in tensors if isinstance(t, Tensor)}


@torch.no_grad()
def count_softmaxes(model: nn.Module, images: Tensor) -> int:
    counter = PairSoftmax(model, images)
    output: Any = None
    with contextlib.suppress(NotImplementedError), counter:  # FlexAttention knows no such modes
        output = model(images)
    return counter.count(output)


def vary(model: nn.Module) -> nn.Module:
    """Parameters that begin as constants away from them, so that nothing cancels by chance."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point() or not parameter.numel():
                continue
            if parameter.ndim < 2 or float(parameter.abs().max()) < 1e-3:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@torch.no_grad()
def answer(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Every tensor of the model's output; what is random is drawn alike each time."""
    torch.manual_seed(1)
    return [leaf for leaf in tree_leaves(model(images)) if isinstance(leaf, Tensor)]


def apart(one: list[Tensor], other: list[Tensor]) -> float:
    """The largest difference relative to the tensor's largest value; infinite where shapes
    differ."""
    if [t.shape for t in one] != [t.shape for t in other]:
        return float("inf")
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        if not torch.equal(a.isfinite(), b.isfinite()):
            return float("inf")
        a, b = (t.double().nan_to_num(0, 0, 0) for t in (a, b))
        if a.numel():
            worst = max(worst, float((a - b).abs().max()) / max(float(a.abs().max()), 1e-12))
    return worst


def examine(
    source: ModuleType, name: str, row: Row, tell: Callable[[], None] = lambda: None
) -> Specimen:
    """Fill in `row`, as far as it goes; the specimen for whoever wants to look closer. `tell` hears
    that it runs."""
    torch.manual_seed(0)
    model, image = source.build(name)
    vary(model)
    if image is None:
        image = image_shape(model)  # the model says it itself
    row.image = list(image)
    torch.manual_seed(0)
    images = torch.randn(2, *image)
    before = answer(model, images)
    row.runs = True
    tell()
    softmaxes = count_softmaxes(model, images)
    started = time.thread_time()
    try:
        specimen = vitreous.open(model, image=image)
    except vitreous.VitreousError as error:
        row.reason = str(error)
        return _by_blocks(model, image, images, before, row)
    row.seconds = round(time.thread_time() - started, 2)
    row.opened = True
    anatomy = specimen.anatomy
    row.units, row.stages = anatomy.counts(), anatomy.stages
    row.reach = sorted({str(unit.reach) for unit in anatomy if unit.reach})
    row.difference = apart(before, answer(specimen, images))
    row.equal = row.difference <= TOLERANCE and apart(before, answer(model, images)) == 0
    _attention(specimen, images, softmaxes, row)
    _lesion(specimen, images, before, row)
    return specimen


def _by_blocks(
    model: nn.Module, image: tuple[int, int, int], images: Tensor, before: list[Tensor], row: Row
) -> Specimen:
    """What is left to a model whose graph cannot be read."""
    specimen = vitreous.open(model, image=image, units="blocks")
    row.blocks, row.units = True, specimen.anatomy.counts()
    row.difference = apart(before, answer(specimen, images))
    row.equal = row.difference <= TOLERANCE
    _lesion(specimen, images, before, row)
    return specimen


def _attention(specimen: Specimen, images: Tensor, softmaxes: int, row: Row) -> None:
    sites = [site for unit in specimen.units for site in specimen._wiring[unit.name].attention]
    seen = [site for site in sites if site.visible or site.reach == "channel"]
    every = max(softmaxes, len([site for site in sites if site.reach != "linear"]))
    row.attention = [len(seen), every] if every else None
    if len(seen) < every:
        reasons = [unit.reason for unit in specimen.units if unit.reason and unit.weights is None]
        row.reason = reasons[0] if reasons else "A product of attention is no unit's."
    errors: list[float] = []

    def note(unit: vitreous.Unit, sites: Any) -> None:
        if sites.attention is not None and unit.weights in ("probabilities", "mixed"):
            errors.append(float((sites.attention.probabilities.values.sum(-1) - 1).abs().max()))

    specimen.observe(images, ("attention",), each=note)
    row.rows = max(errors) if errors else None


def _lesion(specimen: Specimen, images: Tensor, before: list[Tensor], row: Row) -> None:
    middle = [unit for unit in specimen.units if unit.kind not in ("stem", "head")]
    if middle:
        row.lesion = middle[len(middle) // 2].name
        row.change = apart(before, answer(specimen.without(row.lesion), images))


def warm_up() -> None:
    """Load what opening needs, once, before there are processes that would each load it: four
    seconds a model."""
    tiny = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    specimen = vitreous.open(tiny.eval(), image=8)
    specimen.observe(torch.zeros(2, 3, 8, 8), ("attention",))


def apart_from_us(source: ModuleType, name: str) -> Row:
    """`examine` in a process of its own; whatever becomes of it, there is a row."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(source, name, sending))
    child.start()
    sending.close()
    row = Row(name, source.label(name))
    with contextlib.suppress(EOFError):
        while receiving.poll(10 * SECONDS):
            row = Row(**receiving.recv())
    child.join(1)
    if child.exitcode is None:
        child.kill()
        child.join()
    if child.exitcode:
        doing = "opening" if row.runs else "building and running"
        late = child.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
        row.reason = (
            f"{doing} took more than {SECONDS} s"
            if late
            else f"{doing} ended with {child.exitcode}"
        )
    return row


def _child(source: ModuleType, name: str, sending: Any) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    row = Row(name, source.label(name))
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            examine(source, name, row, lambda: sending.send(asdict(row)))
    except BaseException as error:
        lines = str(error).strip().splitlines() or [""]
        expected = isinstance(error, vitreous.VitreousError)
        row.reason = lines[0] if expected else f"{type(error).__name__}: {lines[0]}"
    sending.send(asdict(row))
