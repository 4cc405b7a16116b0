"""Parquet files: written by `datasets` and by hand, against the pictures they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from data.pictures import chw, encoded, noise
from vitreous.data import load
from vitreous.errors import VitreousError

IMAGES = noise(12, 5, 4)
PNGS = [encoded(pixels) for pixels in IMAGES]
NUMBERS = [i % 3 for i in range(12)]
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def cells(images: list[bytes] = PNGS) -> pa.Array:
    return pa.array([{"bytes": png, "path": None} for png in images], STRUCT)


def write(path: Path, columns: dict[str, Any], rows: int = 5) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows)
    return str(path)


def test_as_the_datasets_package_writes_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "elk"])}
    )
    rows = {"image": [{"bytes": png, "path": None} for png in PNGS], "label": NUMBERS}
    table = datasets.Dataset.from_dict(rows, features)
    table.to_parquet(tmp_path / "set.parquet")
    data = load(str(tmp_path / "set.parquet"))
    assert (data.images.numpy() == chw(IMAGES)).all()
    assert data.labels.tolist() == NUMBERS
    assert data.classes == ("cat", "dog", "elk")
    theirs = load(f"hf:{tmp_path}", split="all")
    assert (theirs.images == data.images).all()


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (pa.array(NUMBERS), ("0", "1", "2")),
        (pa.array(["abc"[i] for i in NUMBERS]), ("a", "b", "c")),
        (pa.array(["abc"[i] for i in NUMBERS]).dictionary_encode(), ("a", "b", "c")),
        (pa.array(["abc"[i] for i in NUMBERS], pa.large_string()), ("a", "b", "c")),
    ],
)
@pytest.mark.parametrize("kind", ["struct", "binary", "large"])
def test_columns_of_any_kind(
    tmp_path: Path, labels: pa.Array, classes: tuple[str, ...], kind: str
) -> None:
    types = {"binary": pa.binary(), "large": pa.large_binary()}
    images = cells() if kind == "struct" else pa.array(PNGS, types[kind])
    words = pa.array(["text"] * 12)
    name = write(tmp_path / "set.parquet", {"words": words, "picture": images, "label": labels})
    data = load(name)
    assert (data.images.numpy() == chw(IMAGES)).all()
    assert (data.labels.tolist(), data.classes) == (NUMBERS, classes)


def test_splits_are_told_by_names_of_files(tmp_path: Path) -> None:
    for number, (split, rows) in enumerate(
        {"train-00000-of-00002": slice(0, 5), "train-00001-of-00002": slice(5, 8),
         "validation-00000-of-00001": slice(8, 12)}.items()
    ):  # fmt: skip
        columns = {"image": cells(PNGS[rows]), "label": pa.array(NUMBERS[rows])}
        write(tmp_path / "data" / f"{split}.parquet", columns, rows=number + 1)
    for name in (f"{tmp_path}/data", f"{tmp_path}/data/*.parquet"):
        train, test, every = (load(name, split=split) for split in ("train", "test", "all"))
        assert (train.images.numpy() == chw(IMAGES[:8])).all()
        assert (test.images.numpy() == chw(IMAGES[8:])).all()
        assert len(every) == 12
        assert load(name).split == "train"


def test_without_labels_and_with_some(tmp_path: Path) -> None:
    bare = load(write(tmp_path / "a.parquet", {"image": cells()}))
    assert (bare.labels.unique().tolist(), bare.classes) == ([-1], ())
    some = pa.array([None, *NUMBERS[1:]])
    assert load(write(tmp_path / "b.parquet", {"image": cells(), "label": some})).labels[0] == -1


def test_pictures_that_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for number, png in enumerate(PNGS):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(png)
    paths = [{"bytes": None, "path": f"pictures/{number}.png"} for number in range(12)]
    name = write(tmp_path / "set.parquet", {"image": pa.array(paths, STRUCT)})
    assert (load(name).images.numpy() == chw(IMAGES)).all()


def test_broken_rows_are_named_or_left_out(tmp_path: Path) -> None:
    rows = [{"bytes": png, "path": None} for png in PNGS]
    rows[7] = {"bytes": b"poem", "path": None}
    rows[9] = {"bytes": None, "path": None}
    for file in ("a-train.parquet", "b-train.parquet"):
        write(tmp_path / file, {"image": pa.array(rows, STRUCT), "label": pa.array(NUMBERS)})
    with pytest.raises(VitreousError) as told:
        load(str(tmp_path))
    assert f"{tmp_path}/a-train.parquet, row 7 (not an image)" in str(told.value)
    assert f"{tmp_path}/b-train.parquet, row 9 (no picture in this row)" in str(told.value)
    assert len(load(str(tmp_path), skip_corrupt=True)) == 20


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"label": pa.array([1])}, r"has 0 columns of images .* its columns are label"),
        ({"a": pa.array(PNGS[:1]), "b": pa.array(PNGS[:1])}, "has 2 columns of images"),
        ({"a": pa.array(PNGS[:1]), "label": pa.array([0.5])}, "is double; labels are whole"),
        ({"a": pa.array(PNGS[:1]), "label": pa.array([[1]])}, "labels are whole numbers or words"),
        ({"a": pa.array([], pa.binary())}, "There are no images in"),
    ],
)
def test_errors_name_what_is_wrong(tmp_path: Path, columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(VitreousError, match=sentence):
        load(write(tmp_path / "set.parquet", columns))


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    whole = Path(write(path, {"image": cells()})).read_bytes()
    for content in (b"", b"no parquet", whole[: len(whole) // 2], whole[:-20]):
        path.write_bytes(content)
        with pytest.raises(VitreousError, match=f"Cannot read the parquet file '{path}': ") as told:
            load(str(path))
        assert "\n" not in str(told.value)


def test_files_of_other_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"image": cells()})
    write(tmp_path / "b.parquet", {"img": cells()})
    with pytest.raises(VitreousError, match=r"b\.parquet' has other columns than .*a\.parquet'"):
        load(str(tmp_path))
