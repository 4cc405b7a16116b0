"""Files that are read back: a change to any byte is noticed, a write is complete or absent, one
process has a lock."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from vitreous.errors import VitreousError
from vitreous.storage import atomic_files
from vitreous.storage.atomic_files import (
    Damaged,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from vitreous.storage.locks import NO_LOCKS, Busy, hold_lock

VALUE = {"a": [1, 2.5, None, True, "ß…\n"], "b": {"c": 0.1, "sha256": "inner"}, "3": float("inf")}
TENSORS = {
    "half": torch.arange(5, dtype=torch.bfloat16), "flags": torch.tensor([True, False]),
    "one": torch.tensor(3.0),
    "none": torch.zeros(0, 4), "turned": torch.arange(6.0).reshape(2, 3).T,
    "long": torch.tensor([2**62]),
}  # fmt: skip
TEXT = st.text(st.sampled_from("a:, {}[]0\"'\\/\n\r\t\b\f\x00\x1f\x7fé\u2028\ufeff\ud7ff😀"))
"""What JSON escapes, what readers take for the end of a line or of a value, and a few letters."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def test_there_and_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", VALUE)
    assert read_json(tmp_path / "a.json", strict=True) == VALUE
    write_tensors(tmp_path / "a.safetensors", TENSORS, {"step": 3, "sha256x": "0" * 64})
    tensors, notes = read_tensors(tmp_path / "a.safetensors", strict=True)
    assert notes == {"step": 3, "sha256x": "0" * 64}
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert tensors.keys() == TENSORS.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.safetensors"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.dictionaries(TEXT, JSON, max_size=4))
def test_any_json_comes_back_also_when_reformatted(value: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, value)
    assert read_json(path, strict=True) == value
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_bytes(json.dumps(known, indent=3).replace("\n", "\r\n").encode())
    assert read_json(path, strict=True) == value


def test_the_same_tensors_are_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_tensors(tmp_path / name, TENSORS, {"one": 1, "two": 2})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_bit_of_a_tensor_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, {"step": 3})
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(Damaged):
            read_tensors(path, strict=True)
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(Damaged):
            read_tensors(path, strict=True)
    path.write_bytes(content + b"\0")
    with pytest.raises(Damaged):
        read_tensors(path, strict=True)


def test_every_bit_of_a_json_file_that_matters_counts(tmp_path: Path) -> None:
    """A blank that has become another blank changes nothing."""
    path = tmp_path / "a.json"
    write_json(path, VALUE)
    content = path.read_bytes()
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            assert read_json(path, strict=True) == VALUE
        except Damaged:
            continue
        assert json.loads(path.read_text(encoding="utf-8")) == json.loads(content)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b"\0" * 50, b'{"a": 1}']
)
def test_what_is_no_file_of_ours(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    for read in (read_json, read_tensors):
        with pytest.raises(Damaged, match=r"^'.*a' is damaged \(.*\); .*\.$") as caught:
            read(path, strict=True)
        assert "\n" not in str(caught.value)


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    for read in (read_json, read_tensors):
        with pytest.raises(VitreousError):
            read(tmp_path / "nowhere")
        with pytest.raises(VitreousError, match="Cannot read"):
            read(tmp_path)


def test_files_of_before_are_read_with_one_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(atomic_files, "_without_checksum", [])
    (tmp_path / "a.json").write_text('{"seed": 3}')
    save_file(
        {"w": torch.ones(3)}, tmp_path / "a.safetensors", metadata={"vitreous": '{"step": 3}'}
    )
    with caplog.at_level(logging.WARNING, "vitreous"):
        assert read_json(tmp_path / "a.json") == {"seed": 3}
        assert read_tensors(tmp_path / "a.safetensors")[1] == {"step": 3}
    assert caplog.text.count("has no checksum") == 1
    for read in (read_json, read_tensors):
        with pytest.raises(Damaged, match="it has no checksum"):
            read(
                next(tmp_path.glob(f"*.{read.__name__[5:].replace('tensors', 'safetensors')}")),
                strict=True,
            )


def test_the_disk_has_the_content_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a file could be empty after a power cut. The tests do not wait for disks."""
    path, done = tmp_path / "a.bin", list[object]()

    def synced(handle: int) -> None:
        folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        done.append("folder" if folder else os.fstat(handle).st_size)

    def replaced(source: Path, target: Path) -> None:
        done.append("replace")
        replace(source, target)

    replace = os.replace
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    atomic_files.write_bytes(path, b"seven", b" bytes")
    assert done == [11, "replace", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_what_was_there(
    step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def fails(*given: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fails)
    with pytest.raises((VitreousError, KeyboardInterrupt)):
        write_json(path, {"new": 2})
    monkeypatch.undo()
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


HOLDER = """
import sys
from pathlib import Path
from vitreous.storage.locks import hold_lock
with hold_lock(Path(sys.argv[1]), "training"):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_one_process_has_a_lock_until_it(how: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(atomic_files.__file__).parents[2])}
    command = [sys.executable, "-c", HOLDER, str(tmp_path / ".lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"ready"
        with pytest.raises(
            Busy, match=r"^Another process is inspecting in '.*'; wait for it, or stop it\.$"
        ):
            hold_lock(tmp_path / ".lock", "inspecting").__enter__()
        other.stdin.close() if how == "ends" else other.kill()
        other.wait()
    with hold_lock(tmp_path / ".lock", "inspecting"):
        pass


@pytest.mark.parametrize("number", sorted(NO_LOCKS))
def test_a_file_system_without_locks_has_a_file_instead(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(*given: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING, "vitreous"), hold_lock(tmp_path / ".lock", "training"):
        assert "on a file system without locks" in caplog.text
        with pytest.raises(Busy, match="Another process is training in"):
            hold_lock(tmp_path / ".lock", "training").__enter__()
    with hold_lock(tmp_path / ".lock", "training"):
        pass


@pytest.mark.parametrize("spoil", [Path.mkdir, lambda path: path.symlink_to("nowhere/else")])
def test_a_lock_that_cannot_be_one(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    spoil(tmp_path / ".lock")
    with pytest.raises(VitreousError, match="Cannot write"):
        hold_lock(tmp_path / ".lock", "training").__enter__()
