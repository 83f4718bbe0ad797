"""Images: the fixed order, decoding in other processes, and augmentation."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from farandole.errors import DataError, MissingExtraError
from farandole.labs.data import images, loader_process
from farandole.labs.data.images import (
    FILES_PER_PROCESS,
    Augmentation,
    balanced_order,
    decode,
    num_processes,
    warp,
)

pytest.importorskip("torch")


@pytest.mark.parametrize("sizes", [(50, 50), (10, 90), (1, 7, 30)])
def test_every_beginning_has_each_group_in_its_share(sizes: tuple[int, ...]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = balanced_order(groups, seed=1)
    assert sorted(order.tolist()) == list(range(len(groups)))
    for count in range(1, len(groups) + 1):
        found = np.bincount(groups[order[:count]], minlength=len(sizes))
        expected = count * np.array(sizes) / len(groups)
        # One of a group in each of its parts: it is ahead or behind by less than one of its own,
        # and by what the others are.
        assert np.abs(found - expected).max() <= len(sizes)


def write(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> Path:
    Image.new("RGB", size, colour).save(path)
    return path


def test_images_come_in_order_and_scaled(tmp_path: Path) -> None:
    # More than two chunks, so that both processes have something to do.
    wanted = [(index, 0, 7) for index in range(2 * FILES_PER_PROCESS + 5)]
    files = [write(tmp_path / f"{i} \u00e9'\n.png", c) for i, c in enumerate(wanted)]
    pixels, skipped = decode(files, (6, 8), processes=2)
    assert (pixels.shape, pixels.dtype) == ((len(files), 6, 8, 3), np.uint8)
    assert np.array_equal(pixels[:, 3, 4], np.array(wanted, np.uint8))
    assert skipped == {}


def test_every_kind_of_image_becomes_rgb(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 90).save(tmp_path / "grey.jpg", quality=95)
    Image.new("RGBA", (8, 8), (10, 20, 30, 255)).save(tmp_path / "alpha.png")
    Image.new("P", (8, 8)).save(tmp_path / "palette.gif")
    files = [tmp_path / name for name in ("grey.jpg", "alpha.png", "palette.gif")]
    pixels, skipped = decode(files, (8, 8))
    assert skipped == {}
    assert pixels[:, 0, 0].tolist() == [[90] * 3, [10, 20, 30], [0, 0, 0]]


def test_damaged_files_are_left_out_and_named(tmp_path: Path) -> None:
    good = [write(tmp_path / f"{i}.jpg", (0, 0, 0), size=(64, 64)) for i in range(4)]
    cut = tmp_path / "cut.jpg"
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(cut)
    cut.write_bytes(cut.read_bytes()[:2000])
    text = tmp_path / "text.jpg"
    text.write_text("not an image")
    files = [good[0], cut, good[1], text, tmp_path / "missing.jpg", *good[2:]]
    pixels, skipped = decode(files, (8, 8))
    assert len(pixels) == 4
    assert list(skipped) == [1, 3, 4]
    assert "truncated" in skipped[1]
    assert skipped[3] == f"{text}: not an image that Pillow knows"
    assert skipped[4] == f"{files[4]}: No such file or directory"


def test_mostly_damaged_files_are_an_error(tmp_path: Path) -> None:
    files = [write(tmp_path / "good.png", (1, 2, 3))]
    for number in range(5):
        files.append(tmp_path / f"{number}.jpg")
        files[-1].write_text("not an image")
    with pytest.raises(DataError, match=r"5 of 6 images cannot be read.*0\.jpg: .*; and 2 more"):
        decode(files, (8, 8))
    assert len(decode([files[0], files[1]], (8, 8))[0]) == 1
    with pytest.raises(DataError, match="no image file"):
        decode([], (8, 8))


def test_a_file_that_ends_its_decoder_is_skipped_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands for a file that crashes the image library: reading it kills the process.
    deadly = tmp_path / "deadly.py"
    source = Path(loader_process.__file__).read_text()
    source = source.replace(
        "    from PIL import Image\n\n    with",
        "    from PIL import Image\n    import os\n"
        "    'deadly' in file and os.kill(os.getpid(), 11)\n    with",
    )
    deadly.write_text(source)
    assert "deadly" in source
    monkeypatch.setattr(loader_process, "__file__", str(deadly))
    names = ["a.png", "deadly.png", "b.png", "c.png"]
    files = [write(tmp_path / name, (index, 0, 0)) for index, name in enumerate(names)]
    pixels, skipped = decode(files, (4, 4))
    assert pixels[:, 0, 0, 0].tolist() == [0, 2, 3]
    assert skipped == {1: f"{files[1]}: its decoder was ended by {signal.Signals(11).name}"}


def test_a_decoder_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    monkeypatch.setattr(loader_process, "__file__", str(broken))
    with pytest.raises(DataError, match="ended with code 3 before its first one"):
        decode([write(tmp_path / "a.png", (1, 2, 3))], (4, 4))


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(images, "find_spec", lambda name: None if name == "PIL" else find(name))
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[labs\]'"):
        decode(["a.png"], (4, 4))


@pytest.mark.parametrize(
    ("cores", "local_size", "num_files", "processes"),
    [
        (16, 1, 10_000, 4),
        (16, 2, 10_000, 2),
        (2, 1, 10_000, 2),
        (2, 4, 10_000, 1),
        (16, 1, FILES_PER_PROCESS, 1),
        (16, 1, FILES_PER_PROCESS + 1, 2),
    ],
)
def test_the_workers_of_a_host_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, local_size: int, num_files: int, processes: int
) -> None:
    found = images.read_cores(affinity=frozenset(range(cores)))
    monkeypatch.setattr(
        images, "read_cores", lambda: type(found)(affinity=cores, quota=None, physical=cores)
    )
    place = {"RANK": "0", "LOCAL_RANK": "0"}
    sizes = {"WORLD_SIZE": str(local_size), "LOCAL_WORLD_SIZE": str(local_size)}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    monkeypatch.setattr(os, "environ", {**place, **sizes, **address})
    assert num_processes(num_files) == processes


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    # multiprocessing would import the script in every child, and begin anew there.
    write(tmp_path / "a.png", (1, 2, 3))
    script = tmp_path / "train.py"
    script.write_text(
        "from farandole.labs.data.images import decode\n"
        "print('begin', flush=True)\n"
        "pixels, _ = decode(['a.png'] * 100, (4, 4), processes=2)\n"
        "print(len(pixels))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("begin\n100\n", 0)


CHOSEN = np.arange(400)


def spot(right: int, down: int) -> np.ndarray:
    """An image of 16 pixels a side with a white one."""
    image = np.zeros((1, 16, 16, 3), np.uint8)
    image[0, down, right] = 255
    return image


def place(images: np.ndarray) -> tuple[int, int]:
    """Where its brightest pixel is: right and down."""
    down, right = np.unravel_index(images[0, :, :, 0].argmax(), images.shape[1:3])
    return int(right), int(down)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 0, 0.25], [0, 1, 0]], (3, 8)),  # comes from 2 pixels further right
        ([[1, 0, 0], [0, 1, -0.25]], (5, 10)),
        ([[1, 0, 0], [0, 1, 0]], (5, 8)),
        ([[-1, 0, 0], [0, 1, 0]], (10, 8)),  # mirrored: 15 - 5
        ([[0, -1, 0], [1, 0, 0]], (8, 10)),  # a quarter of a turn
    ],
)
def test_where_pixels_come_from(rows: list[list[float]], expected: tuple[int, int]) -> None:
    assert place(warp(spot(5, 8), np.array([rows], np.float32))) == expected


def test_changes_stay_within_what_is_allowed() -> None:
    maps = Augmentation(seed=1, rotation=0.05, zoom=0.2, shift=0.1, flip=True).maps(CHOSEN, 0)
    assert (maps.shape, maps.dtype) == ((400, 2, 3), np.float32)
    sizes = np.abs(np.linalg.det(maps[:, :, :2].astype(float)))
    # Areas: a zoom of 20 % along both sides.
    assert 0.64 <= sizes.min() < 0.68
    assert 1.4 < sizes.max() <= 1.441
    turns = np.arctan2(-maps[:, 0, 1], maps[:, 1, 1]) / (2 * np.pi)
    assert 0.045 < np.abs(turns).max() <= 0.05
    assert 0.19 < np.abs(maps[:, :, 2]).max() <= 0.2
    mirrored = np.linalg.det(maps[:, :, :2].astype(float)) < 0
    assert 160 < mirrored.sum() < 240, "a binomial of 400 at a half has a deviation of 10"


def test_seed_epoch_and_sample_decide_and_the_batch_does_not() -> None:
    change = Augmentation(seed=1, zoom=0.2, shift=0.2)
    whole = change.maps(CHOSEN, 3)
    assert np.array_equal(change.maps(CHOSEN[7::9], 3), whole[7::9])
    for other in (change.maps(CHOSEN, 4), Augmentation(seed=2, zoom=0.2).maps(CHOSEN, 3)):
        assert not np.any(np.all(other == whole, axis=(1, 2)))
    assert len(np.unique(whole, axis=0)) == len(CHOSEN)
    assert np.array_equal(Augmentation(seed=1).maps(CHOSEN[:1], 0), [[[1, 0, 0], [0, 1, 0]]])
