from __future__ import annotations

import io
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.launch.output import LineSplitter, OutputFiles, Outputs, WorkerOutput


def split(*chunks: bytes) -> list[str]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.end()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc"], ["ab", "c"]),
        ([b"\n\n"], ["", ""]),
        ([b"a\r\nb\r\n"], ["a", "b"]),
        ([b"a\r", b"\nb\n"], ["a", "b"]),
        ([b"\r 10%\r 20%\r 30%\n"], [" 10%", " 20%", " 30%"]),
        ([b" 10%\r", b" 20%\r"], [" 10%", " 20%"]),
        ([b"no end"], ["no end"]),
        (["häß\n".encode()[:2], "häß\n".encode()[2:]], ["häß"]),
        (["é".encode()[:1]], ["�"]),
        ([b"\xff\xfe\n"], ["��"]),
        ([b"form\x0cfeed\x0b\x85\n"], ["form\x0cfeed\x0b�"]),
        ([], []),
    ],
)
def test_lines(chunks: list[bytes], lines: list[str]) -> None:
    assert split(*chunks) == lines


def test_every_cut_of_the_input_gives_the_same_lines() -> None:
    data = "ä\rö\r\nü\n\nß".encode()
    for cut in range(len(data) + 1):
        assert split(data[:cut], data[cut:]) == ["ä", "ö", "ü", "", "ß"]


def test_an_endless_line_is_shown_in_parts() -> None:
    lines = split(*[b"x" * (1 << 19)] * 5)
    assert sum(map(len, lines)) == 5 << 19
    assert len(lines) == 2


class KeptOpen(io.BytesIO):
    kept = b""

    def close(self) -> None:
        self.kept = self.getvalue()
        super().close()


def test_tagged_on_screen_and_raw_in_the_file() -> None:
    shown: list[tuple[str, str]] = []
    file = KeptOpen()
    output = WorkerOutput(
        rank=3,
        stream="stderr",
        show=lambda stream, line: shown.append((stream, line)),
        tag=True,
        file=file,
    )
    output.feed(b"one\r two\nthr")
    output.feed(b"ee")
    output.end()
    file.close()
    assert shown == [
        ("stderr", "[3]<stderr>:one\n"),
        ("stderr", "[3]<stderr>: two\n"),
        ("stderr", "[3]<stderr>:three\n"),
    ]
    assert file.kept == b"one\r two\nthree"
    assert list(output.last_lines) == ["one", " two", "three"]


def test_files_have_zero_padded_ranks(tmp_path: Path) -> None:
    OutputFiles(tmp_path / "new" / "logs", 11).close()
    names = sorted(path.name for path in (tmp_path / "new" / "logs").iterdir())
    assert names[0] == "rank.00"
    assert names[-1] == "rank.10"
    assert (tmp_path / "new/logs/rank.07/stderr").is_file()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--output-dir .*file/logs cannot be written to"):
        OutputFiles(tmp_path / "file" / "logs", 2)


def test_a_worker_that_gets_another_rank_writes_to_that_ranks_file(tmp_path: Path) -> None:
    shown: list[str] = []
    outputs = Outputs(
        1,
        show=lambda _, line: shown.append(line),
        tag=True,
        shown=frozenset({2}),
        files=OutputFiles(tmp_path, 1, most=3),
    )
    outputs.feed(0, "stdout", b"one\n")
    outputs.rename(0, 2)
    outputs.feed(0, "stdout", b"two\n")
    outputs.end()
    assert shown == ["[2]<stdout>:two\n"]
    assert (tmp_path / "rank.0/stdout").read_text() == "one\n"
    assert (tmp_path / "rank.2/stdout").read_text() == "two\n"


def test_a_full_disk_is_said_once_and_ends_nothing() -> None:
    shown: list[str] = []
    with Path("/dev/full").open("wb", buffering=0) as full:
        output = WorkerOutput(
            rank=0, stream="stdout", show=lambda _, line: shown.append(line), tag=False, file=full
        )
        for _ in range(3):
            output.feed(b"x\n")
        output.end()
    assert shown == [
        "farandole: /dev/full is kept no further (No space left on device).\n",
        *["x\n"] * 3,
    ]
