"""A drive from labels.csv or from the simulator's log, and a drawn one in its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farandole.errors import DataError
from farandole.labs.data import describe_driving, load_driving
from farandole.labs.data.table import in_test
from tests.labs.shared_data import shared_data

COUNT = 30


def steering(index: int) -> float:
    return round(index / COUNT * 2 - 1, 3)


def write_image(path: Path, index: int, *, size: tuple[int, int] = (200, 66)) -> None:
    path.parent.mkdir(exist_ok=True)
    # The brightness of the road tells which image it is; what lies above and below is white.
    pixels = np.full((size[1], size[0], 3), 255, np.uint8)
    top, bottom = (0, size[1]) if size[1] == 66 else (60, 135)
    pixels[top:bottom] = index * 5
    Image.fromarray(pixels).save(path, quality=95)


def write_labels(folder: Path, header: str = "file,steering,split") -> Path:
    lines = [header]
    for index in range(COUNT):
        write_image(folder / "images" / f"{index}.jpg", index)
        split = "val" if index % 3 == 0 else "train"
        values = {"file": f"images/{index}.jpg", "steering": str(steering(index)), "split": split}
        lines.append(",".join(values.get(name, "0") for name in header.split(",")))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_log(folder: Path, prefix: str, *, header: bool) -> Path:
    lines = ["center,left,right,steering,throttle,brake,speed"] if header else []
    for index in range(COUNT):
        name = f"center_{index}.jpg"
        write_image(folder / "IMG" / name, index, size=(320, 160))
        sides = f" {prefix}left_{index}.jpg, {prefix}right_{index}.jpg"
        lines.append(f"{prefix}{name},{sides}, {steering(index)}, 0.5, 0, 20.1")
    (folder / "driving_log.csv").write_text("\n".join(lines) + "\n")
    return folder


def check_pairs(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Find out which images these are, and that each has its own steering."""
    indices = [round(float(image.mean()) / 5) for image in x]
    assert y.tolist() == pytest.approx([steering(index) for index in indices])
    return indices


def test_labels_with_a_split(tmp_path: Path) -> None:
    data = load_driving(write_labels(tmp_path))
    assert data.x_train.shape == (20, 66, 200, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.float32)
    assert sorted(check_pairs(data.x_test, data.y_test)) == list(range(0, COUNT, 3))
    assert set(check_pairs(data.x_train, data.y_train)).isdisjoint(range(0, COUNT, 3))
    assert (data.classes, data.skipped) == ((), ())
    part = load_driving(tmp_path, samples=8)
    assert np.array_equal(part.x_train, data.x_train[:8])


def test_without_a_split_the_name_decides(tmp_path: Path) -> None:
    data = load_driving(write_labels(tmp_path, "file,steering"))
    expected = [index for index in range(COUNT) if in_test(f"{index}.jpg")]
    assert sorted(check_pairs(data.x_test, data.y_test)) == expected


def test_one_image_of_five_is_for_testing() -> None:
    # A binomial of 10,000 at a fifth has a deviation of 40.
    assert abs(sum(in_test(f"center_{index}.jpg") for index in range(10_000)) - 2000) < 160


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    "prefix", ["C:\\Users\\me\\sim\\IMG\\", "/home/me/sim run/IMG/", "IMG/"], ids="WLR"
)
def test_the_simulators_log(tmp_path: Path, prefix: str, header: bool) -> None:
    data = load_driving(write_log(tmp_path, prefix, header=header))
    # The part with the road is taken: white would show if more were.
    indices = check_pairs(data.x_train, data.y_train) + check_pairs(data.x_test, data.y_test)
    assert sorted(indices) == list(range(COUNT))
    assert data.x_train.shape[1:] == (66, 200, 3)


def test_damaged_images_are_skipped_and_named(tmp_path: Path) -> None:
    write_labels(tmp_path)
    (tmp_path / "images" / "3.jpg").unlink()
    (tmp_path / "images" / "4.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    data = load_driving(tmp_path)
    assert 3 not in check_pairs(data.x_test, data.y_test)
    assert 4 not in check_pairs(data.x_train, data.y_train)
    facts = describe_driving(tmp_path)
    assert (facts.train, facts.test) == (19, 9)
    assert [text.rpartition("/")[2].partition(":")[0] for text in facts.skipped] == [
        "4.jpg",
        "3.jpg",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("file,angle\na.jpg,0\n", r"columns file and steering.*found file, angle\. steering is"),
        ("file,steering\na.jpg,left\n", "line 2: the steering 'left' is not a number"),
        ("file,steering\na.jpg,nan\n", "line 2: the steering 'nan' is not a number"),
        ("file,steering\na.jpg,0\nb.jpg,1.5\n", "line 3: the steering 1.5 is out of range: -1"),
        ("file,steering,split\na.jpg,0,dev\n", "line 2: unknown split 'dev'.*train, test, val"),
        ("file,steering,split\na.jpg,0,train\n", "1 images for training and 0 for testing"),
        ("file,steering,split\na.jpg,0\n", "line 2: expected 3 columns, found 2"),
        ("file,steering\n\xff", "is not a table in CSV"),
    ],
)
def test_tables_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "labels.csv").write_bytes(content.encode("latin1"))
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}"):
        load_driving(tmp_path)


def test_a_log_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "driving_log.csv").write_text("time,angle\n1,2\n")
    with pytest.raises(DataError, match=r"the simulator's columns, center, .* found time, angle"):
        load_driving(tmp_path)


def test_a_folder_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "IMG").mkdir()
    with pytest.raises(DataError, match=r"Expected: labels\.csv .* Found: IMG/"):
        load_driving(tmp_path)


def test_no_readable_image(tmp_path: Path) -> None:
    write_labels(tmp_path)
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="20 of 20 images cannot be read"):
        load_driving(tmp_path)


def test_a_drawn_road_stands_in() -> None:
    data = load_driving(samples=300, test_samples=100)
    assert data.x_train.shape == (300, 66, 200, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.float32)
    assert np.abs(data.y_train).max() <= 1
    again = load_driving(samples=150, test_samples=10)
    assert np.array_equal(again.x_train, data.x_train[:150])
    facts = describe_driving()
    assert (facts.train, facts.test, facts.sample) == (1600, 400, "66x200 RGB")
    assert facts.source == data.source


def test_the_road_tells_the_steering() -> None:
    """A linear fit on the brightness of columns explains most of what a constant leaves."""
    data = load_driving(samples=1600, test_samples=400)

    def features(x: np.ndarray) -> np.ndarray:
        coarse = x.mean(axis=3).reshape(len(x), 6, 11, 20, 10).mean(axis=(2, 4)).reshape(len(x), -1)
        relative = coarse - coarse.mean(axis=1, keepdims=True)
        return np.c_[relative, np.ones(len(x))]

    weights, *_ = np.linalg.lstsq(features(data.x_train), data.y_train)
    error = np.mean((features(data.x_test) @ weights - data.y_test) ** 2)
    constant = data.y_test.var()

    # Not trivially, either: the unsteady hand alone leaves 0.0016.
    assert 0.0016 < error < 0.9 * constant


def test_the_drive_itself() -> None:
    facts = describe_driving(shared_data("driving"))
    assert (facts.train, facts.test, facts.sample) == (1_627, 400, "66x200 RGB")
    assert facts.skipped == ()
