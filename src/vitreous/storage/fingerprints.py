"""Checksums of JSON values and fingerprints of tensors: short texts that differ when the content
differs.

Stored files, run folders and results contain them, so these formulas never change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def checksum(value: Any) -> str:
    """SHA-256 of a value that JSON can hold, as 64 hexadecimal digits; formatting does not
    matter."""
    plain = json.loads(json.dumps(value))  # numbers as keys become text before they are sorted
    return checksum_of_parsed(plain)


def checksum_of_parsed(value: Any) -> str:
    """`checksum` of a value that was parsed from JSON, in a third of the time."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def fingerprint(*parts: str | Tensor) -> str:
    """Hash texts and tensors, one after the other, to 16 hexadecimal digits.

    Only the bytes of a tensor count, not its device. Where names, types or shapes matter, pass
    them as texts, as `labelled` does.
    """
    return fingerprint_of(parts)


def fingerprint_of(parts: Iterable[str | Tensor]) -> str:
    """`fingerprint` of an iterable, which need not be in memory at once."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else tensor_bytes(part))
    return digest.hexdigest()[:16]


def labelled(tensors: Mapping[str, Tensor]) -> Iterator[str | Tensor]:
    """Yield each tensor in the order of names, after a text with its name, type and shape."""
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        yield tensor


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The content of a tensor on any device, in C order."""
    import torch  # here, because `checksum` also serves commands that start without torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
