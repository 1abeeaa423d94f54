"""Reading recorded images: files through Pillow, arrays of ``.npz`` archives, all resized to one square size.

The aspect ratio is not kept: height and width are resized separately (antialiased bilinear), so nothing is cut off.
"""

from __future__ import annotations

import logging
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.ImageFile import ImageFile

from vnetsim.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
"""Suffixes of image files, in lower case."""
_NAMED = 5
_POINTER = b"version https://git-lfs.github.com/spec/"
logging.getLogger("PIL").addHandler(logging.NullHandler())  # damage is reported by this module, not by Pillow
# errors of Pillow for files that are not images, are damaged, or are far too large
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)


def read_images(
    paths: Sequence[Path], *, grey: bool, side_px: int, places: Sequence[str] = (), key: str = "data.root"
) -> NDArray[np.uint8]:
    """Return the images of files, shape (N, 1, P, P) if ``grey``, else (N, 3, P, P), P = ``side_px``.

    Images are turned upright according to EXIF and stretched to squares. Messages name the setting ``key`` and each
    file by its path, after its entry in ``places`` if there are any. InputError, naming up to five files, if files
    cannot be read; also for pixels of more than 8 bits, whose range is not known.
    """
    images = np.empty((len(paths), 1 if grey else 3, side_px, side_px), dtype=np.uint8)
    faults: list[str] = []
    cure = ""
    for number, path in enumerate(paths):
        place = f"{places[number]}: '{path}'" if places else f"'{path}'"
        try:
            with warnings.catch_warnings(action="ignore"), Image.open(path) as image:  # damage is reported below
                _refuse_wide(image, f"{key}: {place}")
                image.draft("L" if grey else "RGB", (side_px, side_px))  # a large JPEG is decoded at a fraction
                images[number] = _to_square(ImageOps.exif_transpose(image), grey=grey, side_px=side_px)
        except _UNREADABLE:
            faults.append(place)
            cure = cure or lfs_cure(path)
    if faults:
        raise InputError(
            f"{key}: {len(faults)} of {len(paths)} images cannot be read: {join_first(faults)};"
            f" {cure or 'replace them or leave them out'}."
        )
    return images


def _refuse_wide(image: ImageFile, place: str) -> None:
    """Raise InputError, which begins with ``place``, for pixels of more than 8 bits: Pillow would take the upper 8."""
    raw = [(tile[3] if isinstance(tile[3], tuple) else (tile[3],)) for tile in image.tile]
    if image.mode[0] in "IF" or any(";16" in str(one[0]) or one[1:] == (65535,) for one in raw):  # 65535: a .ppm
        raise InputError(f"{place} has pixels of more than 8 bits; bring them to 8 by a range that suits.")


def lfs_cure(path: Path) -> str:
    """Return advice if a file is only a git-lfs pointer; empty for other files and for files that cannot be read."""
    try:
        with path.open("rb") as file:
            is_pointer = file.read(len(_POINTER)) == _POINTER
    except OSError:
        return ""
    return f"'{path.name}' is a pointer of git-lfs: fetch the file itself by `git lfs pull`" if is_pointer else ""


def join_first(items: Sequence[str]) -> str:
    """Return the first five items, separated by commas, then "and K more" if there are K others."""
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(items[:_NAMED]) + more


def _to_square(image: Image.Image, *, grey: bool, side_px: int) -> NDArray[np.uint8]:
    """Return an image, stretched to P x P, as uint8, shape (1, P, P) if ``grey``, else (3, P, P)."""
    image = image.convert("L" if grey else "RGB")
    if image.size != (side_px, side_px):
        image = image.resize((side_px, side_px), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def read_archive(path: Path, *layouts: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return arrays of an ``.npz`` archive by name: those of its first complete layout and ``optional`` ones.

    A layout is a list of array names. InputError if the archive cannot be read, has Python objects, or no layout is
    complete in it.
    """
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception as error:  # zipfile and NumPy raise a dozen kinds for damaged files
        cure = lfs_cure(path) or "name another file"
        raise InputError(f"data.root: '{path}' is no .npz archive that can be read; {cure}.") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(f"data.root: '{path}' holds one bare array; an .npz archive with names is needed.")
    with archive:
        has = set(archive.files)
        layout = next((one for one in layouts if has.issuperset(one)), max(layouts, key=lambda one: len(has & {*one})))
        missing = [name for name in layout if name not in has]
        if missing:
            raise InputError(
                f"data.root: '{path}' lacks {', '.join(missing)}; it has {', '.join(archive.files) or 'no arrays'}."
            )
        try:
            return {name: archive[name] for name in (*layout, *optional) if name in has}
        except MemoryError:
            raise InputError(f"data.root: '{path}' holds more than there is memory for.") from None
        except Exception as error:
            reason = "holds Python objects" if "pickle" in str(error) else "is damaged"
            raise InputError(f"data.root: '{path}' {reason}; plain arrays are needed.") from error


def convert_images(array: NDArray[Any], *, grey: bool, side_px: int, where: str) -> NDArray[np.uint8]:
    """Return the images of an array as uint8, shape (N, 3, P, P), or luma (ITU-R BT.601), (N, 1, P, P), if ``grey``.

    The array has the shape (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W), of whole numbers in 0..255, or floating
    point in [0, 1] if no value exceeds 1, else in [0, 255]. Images are stretched to P = ``side_px``. InputError, which
    begins with ``where``, for another shape, type or range, and for NaN.
    """
    channels = (1, 3)
    if array.ndim == 4 and array.shape[3] not in channels and array.shape[1] in channels:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim not in {3, 4} or (array.ndim == 4 and array.shape[3] not in channels) or 0 in array.shape:
        raise InputError(
            f"{where}: shape {array.shape} is not that of images: (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)."
        )
    pixels = _to_bytes(array, where)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        pixels = pixels[..., 0]
    images = np.empty((len(pixels), 1 if grey else 3, side_px, side_px), dtype=np.uint8)
    for number, image in enumerate(pixels):
        images[number] = _to_square(Image.fromarray(image), grey=grey, side_px=side_px)
    return images


def _to_bytes(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Return numbers as uint8, floats scaled by 255 if none exceeds 1; InputError for other types, ranges and NaN."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{where}: pixels of type {array.dtype} are not numbers; store them as uint8.")
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= 255):  # NaN too
        raise InputError(f"{where}: pixels from {low} to {high} are not in 0..255 nor in [0, 1]; store them as uint8.")
    scale = 255 if array.dtype.kind == "f" and high <= 1 else 1
    return np.asarray(np.rint(array * array.dtype.type(scale)), dtype=np.uint8)


def require_root(root: str, name: str, what: str, *, folder: bool = False) -> Path:
    """Return ``data.root`` as a path; InputError if it is empty or does not exist or, with ``folder``, is no folder.

    ``name`` is the data set's and ``what`` says in words what it needs there, both for the message.
    """
    if not root:
        raise InputError(f"data.root: {name} needs {what}: --data-root PATH.")
    path = Path(root)
    if not (path.is_dir() if folder else path.exists()):
        fault = "is not a folder" if path.exists() else "does not exist"
        raise InputError(f"data.root: '{root}' {fault}; {name} needs {what}.")
    return path
