"""Image files become arrays in other processes; damaged ones are named and left out."""

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
from farandole.labs.data.images import CHUNK, decode, num_processes


def write(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> Path:
    Image.new("RGB", size, colour).save(path)
    return path


def colours(count: int) -> list[tuple[int, int, int]]:
    return [(index % 250, index // 250, 7) for index in range(count)]


def test_images_come_in_order_and_scaled(tmp_path: Path) -> None:
    # More than two chunks, so that both processes have something to do.
    wanted = colours(2 * CHUNK + 5)
    files = [write(tmp_path / f"{i} \u00e9'\n.png", c) for i, c in enumerate(wanted)]
    pixels, skipped = decode(files, (6, 8), processes=2)
    assert (pixels.shape, pixels.dtype) == ((len(files), 6, 8, 3), np.uint8)
    assert np.array_equal(pixels[:, 3, 4], np.array(wanted, np.uint8))
    assert skipped == ()


def test_a_part_of_the_rows(tmp_path: Path) -> None:
    upper = np.zeros((40, 20, 3), np.uint8)
    upper[10:20] = 200
    Image.fromarray(upper).save(tmp_path / "a.png")
    pixels, _ = decode([tmp_path / "a.png"], (10, 20), rows=(0.25, 0.5))
    assert np.array_equal(pixels, np.full((1, 10, 20, 3), 200))


def test_every_kind_of_image_becomes_rgb(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 90).save(tmp_path / "grey.jpg", quality=95)
    Image.new("RGBA", (8, 8), (10, 20, 30, 255)).save(tmp_path / "alpha.png")
    Image.new("P", (8, 8)).save(tmp_path / "palette.gif")
    files = [tmp_path / name for name in ("grey.jpg", "alpha.png", "palette.gif")]
    pixels, skipped = decode(files, (8, 8))
    assert skipped == ()
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
    assert [skip.index for skip in skipped] == [1, 3, 4]
    assert "truncated" in str(skipped[0])
    assert str(skipped[1]) == f"{text}: not an image that Pillow knows"
    assert str(skipped[2]) == f"{files[4]}: No such file or directory"


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
    assert [str(skip) for skip in skipped] == [
        f"{files[1]}: its decoder was ended by {signal.Signals(11).name}"
    ]


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
        (16, 1, CHUNK, 1),
        (16, 1, CHUNK + 1, 2),
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
