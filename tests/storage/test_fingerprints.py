"""Fingerprints and checksums: the values that runs and results on disk contain."""

from __future__ import annotations

import torch

from vitreous.storage.fingerprints import checksum, fingerprint, labelled


def test_known_values_never_change() -> None:
    tensors = {"b": torch.arange(3), "a": torch.tensor(0.5, dtype=torch.bfloat16)}
    assert checksum({"b": [1, 2.5], "a": {3: None}})[:12] == "a18133f889da"
    assert fingerprint("name", torch.arange(4, dtype=torch.uint8)) == "b7bb751f2a6f0aa8"
    assert fingerprint(*labelled(tensors)) == "0f6a7f57d409ecfa"


def test_types_shapes_and_names_count_where_they_are_labelled() -> None:
    known = {"a": torch.zeros(2, 3)}
    others = [{"b": known["a"]}, {"a": torch.zeros(3, 2)}, {"a": torch.zeros(2, 3).int()}]
    assert len({fingerprint(*labelled(each)) for each in (known, *others)}) == 4
    assert fingerprint(known["a"].T) == fingerprint(torch.zeros(6), torch.zeros(0))
