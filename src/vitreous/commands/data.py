"""`vitreous data`: describe a dataset, and draw a contact sheet of it."""

from __future__ import annotations

from pathlib import Path

from vitreous.commands.output_files import named_outputs
from vitreous.commands.terminal import ImageOption, console
from vitreous.data.dataset_names import check_dataset
from vitreous.errors import VitreousError
from vitreous.validation import check_ranges


def show_data(
    name: str,
    /,
    *,
    split: str | None = None,
    image: ImageOption | None = None,
    size: int | None = None,
    seed: int = 0,
    skip_corrupt: bool = False,
    root: Path | None = None,
    out: Path | None = None,
) -> None:
    """Describe a dataset: images, classes, sizes; with --out also a contact sheet.

    Example: vitreous data photos --split test --out sheet.png

    Parameters
    ----------
    name
        A folder, a file, a pattern ('photos/*.jpg'), a .zip or .tar, shards
        ('train-{000..004}.tar'), a .parquet, npz:PATH, tv:NAME, hf:NAME or world:TASK.
    split
        train, test, val or all (default: train, or all images of data without splits).
    image
        Size of the images: a side (224) or 224x160 (default: their own if they share one, else
        224).
    size
        Maximum number of images, class-balanced (default: all).
    seed
        Random seed of the subset and of the contact sheet (default: 0).
    skip_corrupt
        Leave out files that cannot be decoded.
    root
        Folder of torchvision's downloads (default: in the cache of Vitreous).
    out
        Also draw a contact sheet: a .png, .jpg or .webp.
    """
    if out is not None and out.suffix not in (".png", ".jpg", ".webp"):
        raise VitreousError(
            f"A contact sheet ends in .png, .jpg or .webp, and {str(out)!r} does not."
        )
    check_ranges(size=size, seed=seed)
    check_dataset(name, split)
    # Here, because torch comes with them.
    from vitreous.data import load
    from vitreous.data.contact_sheet import contact_sheet, save_contact_sheet
    from vitreous.data.summary import summary_table

    dataset = load(
        name, split=split, image=image, size=size, seed=seed, skip_corrupt=skip_corrupt, root=root,
    )  # fmt: skip
    console().print(summary_table(dataset))
    if out is not None:
        [output] = named_outputs([out])
        save_contact_sheet(contact_sheet(dataset, seed=seed), output.path)
        console().print(output.sentence(), highlight=False, markup=False, soft_wrap=True)
