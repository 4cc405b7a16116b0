"""Archives and shards: their pictures, classes and splits, against the files they were made from;
and what is wrong with those that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from data.pictures import chw, encoded, noise, tree
from vitreous.data import load
from vitreous.data.sources import archive_files
from vitreous.errors import VitreousError

IMAGES = noise(6, 5, 4)
PNGS = [encoded(pixels) for pixels in IMAGES]
Files = Mapping[str, bytes]


def write_zip(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tar_bytes(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def write_tar(path: Path, files: Files) -> Path:
    pack: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress, ".tgz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    }  # fmt: skip
    path.write_bytes(pack.get(path.suffix, bytes)(tar_bytes(files)))
    return path


WRITERS = {
    "set.zip": write_zip, "set.tar": write_tar, "set.tar.gz": write_tar, "set.tgz": write_tar,
    "set.tar.bz2": write_tar, "set.tar.xz": write_tar,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("top", ["", "photos/", "./", "a/b/c/"])
def test_folders_in_an_archive_are_classes(tmp_path: Path, name: str, top: str) -> None:
    paths = ["cat/1.png", "cat/2.png", "dog/1.png", "dog/deep/2.png", "elk/1.png", "elk/2.png"]
    files = {f"{top}{path}": png for path, png in zip(paths, PNGS, strict=True)}
    others = {
        f"{top}.hidden.png": b"", f"{top}cat/._1.png": b"", f"__MACOSX/{top}cat/1.png": b"",
        f"{top}cat/notes.txt": b"",
    }  # fmt: skip
    data = load(str(WRITERS[name](tmp_path / name, files | others)))
    assert data.classes == ("cat", "dog", "elk")
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert (data.images.numpy() == chw(IMAGES)).all()
    assert data.split == "all"


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_splits_in_an_archive(tmp_path: Path, write: Callable[[Path, Files], Path]) -> None:
    paths = ["train/a/1.png", "train/b/1.png", "train/b/2.png", "val/a/1.png", "val/b/1.png"]
    files = {f"photos/{path}": png for path, png in zip(paths, PNGS[:5], strict=True)}
    name = str(write(tmp_path / ("set.zip" if write is write_zip else "set.tar"), files))
    train, test, every = (load(name, split=split) for split in ("train", "test", "all"))
    assert (train.images.numpy() == chw(IMAGES[:3])).all()
    assert (test.images.numpy() == chw(IMAGES[3:5])).all()
    assert (every.images.numpy() == chw(IMAGES[:5])).all()
    assert load(name).split == "train"


def test_a_flat_archive_has_no_labels(tmp_path: Path) -> None:
    files = {f"photos/{i}.png": png for i, png in enumerate(PNGS)}
    data = load(str(write_zip(tmp_path / "set.zip", files)))
    assert (data.classes, data.labels.unique().tolist()) == ((), [-1])


def test_without_splits_a_tenth_is_held_out_when_asked_for(tmp_path: Path) -> None:
    images = noise(40, 4, 4)
    files = {f"{'ab'[i % 2]}/{i:02}.png": encoded(pixels) for i, pixels in enumerate(images)}
    name = str(write_tar(tmp_path / "set.tar", files))
    assert [len(load(name, split=split)) for split in ("train", "test", "all")] == [36, 4, 40]
    assert len(load(name)) == 40


def samples(numbers: range, label: Callable[[int], Files]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for number in numbers:
        files[f"{number:04}.png"] = encoded(noise(10, 4, 4)[number])
        files |= {f"{number:04}.{ending}": text for ending, text in label(number).items()}
    return files


@pytest.mark.parametrize(
    ("label", "classes"),
    [
        (lambda i: {"cls": b"%d" % (i % 3)}, ("0", "1", "2")),
        (lambda i: {"cls": [b"cat\n", b"dog\n", b"elk\n"][i % 3]}, ("cat", "dog", "elk")),
        (lambda i: {"json": json.dumps({"label": i % 3}).encode()}, ("0", "1", "2")),
        (lambda i: {"json": json.dumps({"class_name": "abc"[i % 3]}).encode()}, ("a", "b", "c")),
        (lambda i: {"json": b'{"label": 7}', "cls": b"%d" % (i % 3)}, ("0", "1", "2")),
        (
            lambda i: {"txt": b"a caption", "mask.png": PNGS[0], "cls": b"%d" % (i % 3)},
            ("0", "1", "2"),
        ),
    ],
)
def test_webdataset_shards(
    tmp_path: Path, label: Callable[[int], Files], classes: tuple[str, ...]
) -> None:
    for shard in range(2):
        numbers = range(5 * shard, 5 * shard + 5)
        write_tar(tmp_path / f"shard-{shard:03}.tar", samples(numbers, label))
    names = ("shard-{000..001}.tar", "shard-{000,001}.tar", "shard-*.tar", "", "*")
    for name in (f"{tmp_path}/{each}" for each in names):
        data = load(name)
        assert (data.images.numpy() == chw(noise(10, 4, 4))).all(), name
        assert data.labels.tolist() == [i % 3 for i in range(10)]
        assert data.classes == classes
    assert load(f"{tmp_path}/shard-001.tar", split="all").labels.tolist() == [2, 0, 1, 2, 0]


def test_shards_whose_names_are_splits(tmp_path: Path) -> None:
    def label(number: int) -> Files:
        return {"cls": b"%d" % (number % 2)}

    write_tar(tmp_path / "set-train-0.tar", samples(range(4), label))
    write_tar(tmp_path / "set-train-1.tar", samples(range(4, 8), label))
    write_tar(tmp_path / "set-val-0.tar", samples(range(8, 10), label))
    train, test, every = (load(str(tmp_path), split=each) for each in ("train", "test", "all"))
    assert (train.images.numpy() == chw(noise(10, 4, 4)[:8])).all()
    assert (test.images.numpy() == chw(noise(10, 4, 4)[8:])).all()
    assert len(every) == 10
    assert (test.mean, test.classes) == (train.mean, train.classes)
    with pytest.raises(VitreousError, match="has no split 'test', only train; ask for that one"):
        load(f"{tmp_path}/set-train-{{0..1}}.tar", split="test")
    plain = {"cat/1.png": PNGS[0], "dog/1.png": PNGS[1]}
    write_zip(tmp_path / "train.zip", plain)
    write_zip(tmp_path / "test.zip", dict.fromkeys(plain, PNGS[2]))
    zips = f"{tmp_path}/{{train,test}}.zip"
    assert [len(load(zips, split=each)) for each in ("train", "test", "all")] == [2, 2, 4]


def test_a_sample_without_a_label_is_kept(tmp_path: Path) -> None:
    files = samples(range(3), lambda i: {"cls": b"%d" % i} if i else {})
    data = load(str(write_tar(tmp_path / "set.tar", files)))
    assert data.labels.tolist() == [-1, 1, 2]


def test_labels_that_make_no_sense(tmp_path: Path) -> None:
    mixed = samples(range(2), lambda i: {"cls": [b"cat", b"1"][i]})
    with pytest.raises(VitreousError, match="partly numbers and partly words"):
        load(str(write_tar(tmp_path / "a.tar", mixed)))
    broken = samples(range(2), lambda i: {"json": b"{"})
    with pytest.raises(VitreousError, match=r"The label '0000\.json' is no JSON"):
        load(str(write_tar(tmp_path / "b.tar", broken)))


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_paths_out_of_the_archive_are_harmless(
    tmp_path: Path, write: Callable[[Path, Files], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    names = ["../../escaped.png", "/absolute.png", f"{tmp_path}/direct.png", "..\\back.png"]
    files = dict(zip(names, PNGS, strict=False))
    name = "set.zip" if write is write_zip else "set.tar"
    before = sorted(path for path in tmp_path.rglob("*"))
    data = load(str(write(tmp_path / name, files)), split="all")
    assert len(data) >= 1
    assert sorted(path for path in tmp_path.rglob("*")) == sorted([*before, tmp_path / name])
    assert not Path("/absolute.png").exists()


def test_links_and_devices_in_a_tar_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNGS[5])
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for name, kind in {"a/link.png": tarfile.SYMTYPE, "b/hard.png": tarfile.LNKTYPE,
                           "b/pipe.png": tarfile.FIFOTYPE}.items():  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, str(secret)
            archive.addfile(info)
        for name, content in {"a/1.png": PNGS[0], "b/1.png": PNGS[1]}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert len(load(str(tmp_path / "set.tar"))) == 2


@pytest.mark.parametrize("name", WRITERS)
def test_an_archive_that_is_damaged_is_named(tmp_path: Path, name: str) -> None:
    files = {f"{'ab'[i % 2]}/{i}.png": encoded(noise(1, 40, 40, i)[0]) for i in range(6)}
    whole = WRITERS[name](tmp_path / name, files).read_bytes()
    for content in (b"", b"not an archive at all", whole[: len(whole) // 2], whole[:100]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(VitreousError) as told:
            load(str(tmp_path / name))
        sentence = str(told.value)
        assert sentence.startswith(f"Cannot read the archive '{tmp_path / name}': ")
        assert "\n" not in sentence
        assert sentence.count(". ") == 0


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    """tarfile stops there without a word, which would lose images."""
    files = {f"{'ab'[i % 2]}/{i}.png": PNGS[i] for i in range(6)}
    content = bytearray(tar_bytes(files))
    with tarfile.open(fileobj=io.BytesIO(bytes(content))) as archive:
        third = archive.getmembers()[2].offset
    content[third + 10] ^= 0xFF
    (tmp_path / "set.tar").write_bytes(content)
    with pytest.raises(VitreousError, match=f"no member begins at byte {third:,}"):
        load(str(tmp_path / "set.tar"))


def test_broken_members_are_named_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a/1.png": PNGS[0], "a/2.png": b"poem", "b/1.png": PNGS[1], "b/2.png": PNGS[2][:40]}
    for write, name in ((write_zip, "set.zip"), (write_tar, "set.tar"), (write_tar, "set.tgz")):
        where = str(write(tmp_path / name, files))
        with pytest.raises(VitreousError) as told:
            load(where)
        words = f"2 of 4 images of '{where}' cannot be decoded: {where}, a/2.png (not an image)"
        assert str(told.value).startswith(words)
        assert load(where, skip_corrupt=True).labels.tolist() == [0, 1]
    monkeypatch.setattr(archive_files, "LARGEST", len(PNGS[0]) - 1)
    with pytest.raises(VitreousError, match="bytes, more than a picture has"):
        load(str(write_tar(tmp_path / "large.tar", {"a/1.png": PNGS[0]})))


def test_a_flipped_byte_in_a_zip_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a/1.bmp", encoded(IMAGES[0], "BMP"))
    content = bytearray(path.read_bytes())
    content[content.index(b"BM") + 60] ^= 1
    path.write_bytes(content)
    with pytest.raises(VitreousError, match=r"a/1\.bmp \(Bad CRC-32"):
        load(str(path))


def test_an_archive_without_pictures(tmp_path: Path) -> None:
    for write, name in ((write_zip, "set.zip"), (write_tar, "set.tar")):
        for files in ({}, {"notes.txt": b"words"}):
            with pytest.raises(VitreousError, match="There are no pictures in"):
                load(str(write(tmp_path / name, files)))


def test_an_encrypted_zip_is_called_so(tmp_path: Path) -> None:
    """The flag alone: zipfile cannot write an encrypted file."""
    path = write_zip(tmp_path / "set.zip", {"a/1.png": PNGS[0], "b/1.png": PNGS[1]})
    content = bytearray(path.read_bytes())
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(magic)
        while start >= 0:
            content[start + place] |= 1
            start = content.find(magic, start + 4)
    path.write_bytes(content)
    with pytest.raises(VitreousError, match=r"1\.png \(it is encrypted\)"):
        load(str(path))


def test_the_cache_follows_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    first = load(str(write_zip(path, {"a/1.png": PNGS[0], "b/1.png": PNGS[1]})))
    second = load(str(write_zip(path, {"a/1.png": PNGS[2], "b/1.png": PNGS[3]})))
    assert (first.images.numpy() == chw(IMAGES[:2])).all()
    assert (second.images.numpy() == chw(IMAGES[2:4])).all()


def test_many_members_decoded_at_once(tmp_path: Path) -> None:
    images = noise(300, 8, 8)
    files = {f"{'abc'[i % 3]}/{i:03}.png": encoded(pixels) for i, pixels in enumerate(images)}
    order = sorted(range(300), key=lambda i: ("abc"[i % 3], i))
    for write, name in ((write_zip, "s.zip"), (write_tar, "s.tar"), (write_tar, "s.tar.gz")):
        data = load(str(write(tmp_path / name, files)))
        by_label = np.argsort(data.labels.numpy(), kind="stable")
        assert (data.images.numpy()[by_label] == chw(images[order])).all()


def test_an_archive_of_a_folder_is_the_same_set(tmp_path: Path) -> None:
    """Whatever the order of its members."""
    tree(tmp_path / "photos", {"cat": 12, "dog": 11})
    paths = sorted((tmp_path / "photos").glob("*/*.png"), key=lambda path: path.name[::-1])
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}
    folder = load(str(tmp_path / "photos"))
    for write, name in ((write_zip, "s.zip"), (write_tar, "s.tar"), (write_tar, "s.tar.xz")):
        archive = load(str(write(tmp_path / name, files)))
        assert archive.fingerprint == folder.fingerprint
        assert (archive.mean, archive.std) == (folder.mean, folder.std)
