"""Every token mixer against a dense reference written as loops over queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitreous.models.mixers import (
    Attention,
    Border,
    Box,
    MeanAttention,
    NeighbourhoodAttention,
    Pool,
    TokenMlp,
    WindowAttention,
    box_mean,
)
from vitreous.models.positions import Offsets, Relative, relative_index

GRID = (3, 4)
WIDTH, HEADS, HEAD_DIM = 8, 2, 3
N = GRID[0] * GRID[1]


def place(token: int) -> tuple[int, int]:
    return divmod(token, GRID[1])


def double(module: nn.Module) -> Any:
    """In float64 with nothing at its initial value."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module


def dense(
    mixer: Attention, x: Tensor, sees: Callable[[int, int], bool], extra: Callable[[int], int]
) -> Tensor:
    """Attention one query at a time over the keys it `sees`, plus `extra` keys with logit 0 and
    value 0."""
    q, k, v = mixer.split(x)
    out = torch.zeros_like(v)
    for image in range(x.shape[0]):
        for head in range(HEADS):
            for i in range(x.shape[1]):
                keys = [j for j in range(x.shape[1]) if sees(i, j)]
                logits = k[image, head, keys] @ q[image, head, i] / HEAD_DIM**0.5
                shares = torch.cat([logits, torch.zeros(extra(i), dtype=logits.dtype)]).softmax(0)[
                    : len(keys)
                ]
                out[image, head, i] = shares @ v[image, head, keys]
    return mixer.proj(out.transpose(1, 2).flatten(2))


def near(kernel: int, dilation: int = 1) -> Callable[[int, int], bool]:
    steps = [dilation * s for s in range(-(kernel // 2), kernel // 2 + 1)]

    def sees(i: int, j: int) -> bool:
        return all(a - b in steps for a, b in zip(place(i), place(j), strict=True))

    return sees


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 1), (3, 2)])
@pytest.mark.parametrize("border", ["masked", "zero"])
def test_neighbourhood_equals_dense(kernel: int, dilation: int, border: Border) -> None:
    torch.manual_seed(0)
    mixer = double(
        NeighbourhoodAttention(WIDTH, HEADS, HEAD_DIM, True, GRID, kernel, dilation, border)
    )
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    sees = near(kernel, dilation)
    outside = {i: kernel**2 - sum(sees(i, j) for j in range(N)) for i in range(N)}
    expected = dense(mixer, x, sees, lambda i: outside[i] if border == "zero" else 0)
    torch.testing.assert_close(mixer(x), expected)


def test_zero_border_is_unfold_with_padding() -> None:
    """The released code's way: unfold zero-padded keys and values, softmax over all kernel^2 of
    them."""
    torch.manual_seed(0)
    mixer = double(NeighbourhoodAttention(WIDTH, HEADS, HEAD_DIM, False, GRID, 3, 1, "zero"))
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    q, k, v = mixer.split(x)

    def unfolded(t: Tensor) -> Tensor:
        image = t.transpose(2, 3).reshape(2, HEADS * HEAD_DIM, *GRID)
        return nn.functional.unfold(image, 3, padding=1).reshape(2, HEADS, HEAD_DIM, 9, N)

    shares = (torch.einsum("bhnd,bhdkn->bhnk", q, unfolded(k)) / HEAD_DIM**0.5).softmax(-1)
    expected = torch.einsum("bhnk,bhdkn->bhnd", shares, unfolded(v))
    torch.testing.assert_close(mixer(x), mixer.merge(expected))


@pytest.mark.parametrize(("window", "grid"), [(1, (3, 4)), (2, (4, 6)), (3, (3, 6))])
def test_window_equals_dense(window: int, grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    mixer = double(WindowAttention(WIDTH, HEADS, HEAD_DIM, True, grid, window))
    x = torch.randn(2, grid[0] * grid[1], WIDTH, dtype=torch.float64)

    def tile(token: int) -> tuple[int, int]:
        return token // grid[1] // window, token % grid[1] // window

    torch.testing.assert_close(
        mixer(x), dense(mixer, x, lambda i, j: tile(i) == tile(j), lambda i: 0)
    )


@pytest.mark.parametrize("offsets", ["1d", "2d", "full"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("prefix", [0, 1])
def test_relative_equals_loop(offsets: Offsets, shared: bool, prefix: int) -> None:
    torch.manual_seed(0)
    relative = Relative(GRID, HEADS, HEAD_DIM, offsets, shared)
    mixer = double(Attention(WIDTH, HEADS, HEAD_DIM, True, relative))
    x = torch.randn(2, prefix + N, WIDTH, dtype=torch.float64)
    q, k, v = mixer.split(x)
    logits = q @ k.mT
    which: dict[tuple[int, ...], int] = {}
    for i in range(N):
        for j in range(N):
            (row, column), (key_row, key_column) = place(i), place(j)
            pair = {"1d": (i - j,), "2d": (row - key_row, column - key_column), "full": (i, j)}[
                offsets
            ]
            index = int(relative.index[i, j])
            assert which.setdefault(pair, index) == index
            for head in range(HEADS):
                vector = relative.table[0 if shared else head, index]
                logits[:, head, prefix + i, prefix + j] += q[:, head, prefix + i] @ vector
    in_order = [which[pair] for pair in sorted(which)]
    assert in_order == list(range(relative.table.shape[1])), (
        "each offset, query less key, has its own vector, in order"
    )
    weights = (logits / HEAD_DIM**0.5).softmax(-1)
    torch.testing.assert_close(mixer.weights(x), weights)
    torch.testing.assert_close(mixer(x), mixer.merge(weights @ v))


def test_numbers_of_relative_vectors() -> None:
    assert relative_index((3, 4), "1d").max() + 1 == 2 * 12 - 1
    assert relative_index((3, 4), "2d").max() + 1 == 5 * 7
    assert relative_index((3, 4), "full").max() + 1 == 12**2


def mean_over(kernel: int, x: Tensor) -> Tensor:
    before, after = (kernel - 1) // 2, kernel // 2
    out = torch.zeros_like(x)
    for i in range(N):
        row, column = place(i)
        seen = [
            j for j in range(N)
            if -before <= place(j)[0] - row <= after and -before <= place(j)[1] - column <= after
        ]  # fmt: skip
        out[:, i] = x[:, seen].mean(1)
    return out


@pytest.mark.parametrize("kernel", [1, 2, 3, 5, 7])
def test_box_and_pool_equal_a_loop(kernel: int) -> None:
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(box_mean(x, GRID, kernel), mean_over(kernel, x))
    torch.testing.assert_close(Pool(GRID, kernel)(x), mean_over(kernel, x) - x)
    box = double(Box(WIDTH, True, GRID, kernel))
    torch.testing.assert_close(box(x), box.proj(mean_over(kernel, box.v(x))))


def test_box_of_two_weighs_a_quarter_each_and_a_large_one_is_the_global_mean() -> None:
    x = torch.randn(1, N, 1, dtype=torch.float64)
    assert box_mean(x, GRID, 2)[0, 0, 0].item() == pytest.approx(
        x[0, [0, 1, 4, 5], 0].mean().item()
    )
    torch.testing.assert_close(box_mean(x, GRID, 7), x.mean(1, keepdim=True).expand_as(x))


def test_mean_attention_starts_uniform_and_keeps_rows_at_one() -> None:
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    mixer = MeanAttention(WIDTH, HEADS, HEAD_DIM, True, N, learned=False).double()
    torch.testing.assert_close(
        mixer(x), mixer.proj(mixer.v(x).mean(1, keepdim=True)).expand(-1, N, -1)
    )
    assert dict(mixer.named_buffers()).keys() == {"pattern"}
    learned = MeanAttention(WIDTH, HEADS, HEAD_DIM, True, N, learned=True).double()
    learned(x).square().sum().backward()
    assert learned.pattern.grad is not None


MIXERS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: Attention(WIDTH, HEADS, HEAD_DIM, True),
    "neighbourhood": lambda: NeighbourhoodAttention(
        WIDTH, HEADS, HEAD_DIM, True, GRID, 3, 1, "masked"
    ),
    "neighbourhood zero": lambda: NeighbourhoodAttention(
        WIDTH, HEADS, HEAD_DIM, True, GRID, 3, 1, "zero"
    ),
    "window": lambda: WindowAttention(WIDTH, HEADS, HEAD_DIM, True, (2, 6), 2),
    "relative 1d": lambda: Attention(
        WIDTH, HEADS, HEAD_DIM, True, Relative(GRID, HEADS, HEAD_DIM, "1d", False)
    ),
    "relative 2d": lambda: Attention(
        WIDTH, HEADS, HEAD_DIM, True, Relative(GRID, HEADS, HEAD_DIM, "2d", True)
    ),
    "relative full": lambda: Attention(
        WIDTH, HEADS, HEAD_DIM, True, Relative(GRID, HEADS, HEAD_DIM, "full", False)
    ),
    "mean": lambda: MeanAttention(WIDTH, HEADS, HEAD_DIM, True, N, True),
    "box": lambda: Box(WIDTH, True, GRID, 3),
    "pool": lambda: Pool(GRID, 3),
    "token_mlp": lambda: TokenMlp(N, 5),
}


@pytest.mark.parametrize("kind", MIXERS)
def test_gradients(kind: str) -> None:
    """Of the output with respect to the input and every parameter, against finite differences in
    float64."""
    torch.manual_seed(0)
    mixer = double(MIXERS[kind]())
    names, values = zip(
        *[("x", torch.randn(1, N, WIDTH, dtype=torch.float64)), *mixer.named_parameters()],
        strict=True,
    )

    def run(*inputs: Tensor) -> Tensor:
        given = dict(zip(names, inputs, strict=True))
        return torch.func.functional_call(
            mixer, {k: v for k, v in given.items() if k != "x"}, (given["x"],)
        )

    assert torch.autograd.gradcheck(
        run, [v.detach().requires_grad_() for v in values], fast_mode=True
    )


def test_attention_is_an_ensemble_weighted_by_proximity() -> None:
    """HDV-55: sum_i pi(x_i | x_j) p(z_j | x_i) with pi = softmax(q k^T), p = v, point by point.

    With pi fixed to 1/4 over 2 x 2 neighbours the same sum is a blur.
    """
    mixer = double(Attention(WIDTH, HEADS, HEAD_DIM, False))
    x = torch.randn(1, N, WIDTH, dtype=torch.float64)
    q, k, v = mixer.split(x)
    ensemble = torch.zeros_like(v)
    for j in range(N):
        importance = torch.stack(
            [(q[:, :, j] * k[:, :, i]).sum(-1) / HEAD_DIM**0.5 for i in range(N)]
        ).exp()
        for i in range(N):
            ensemble[:, :, j] += (importance[i] / importance.sum(0))[..., None] * v[:, :, i]
    assert (mixer(x) - mixer.merge(ensemble)).abs().max() < 1e-6
    image = x.mT.reshape(1, WIDTH, *GRID)
    quarter = sum(
        image[..., a : a + GRID[0] - 1, b : b + GRID[1] - 1] / 4 for a in (0, 1) for b in (0, 1)
    )
    assert (
        box_mean(x, GRID, 2).mT.reshape(image.shape)[..., :-1, :-1] - quarter
    ).abs().max() < 1e-6


def test_weights_are_what_forward_uses() -> None:
    """X-07: rows sum to one, and the output is those weights times the values."""
    for kind in ("attention", "neighbourhood", "relative 1d"):
        mixer = double(MIXERS[kind]())
        x = torch.randn(2, N, WIDTH, dtype=torch.float64)
        weights = mixer.weights(x)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, N, dtype=torch.float64))
        torch.testing.assert_close(mixer.merge(weights @ mixer.split(x)[2]), mixer(x))
