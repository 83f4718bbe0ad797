"""Studies whose truth is known: the sentence or number that a reader gets is asserted.

Real launches of scripts that sleep. Others may use the machine meanwhile, so that figures have
some room, and the word "busy" is no part of what is compared.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

import farandole
from farandole.cli.progress import listener
from farandole.errors import UsageError
from farandole.model.analyse import ScalingInfo, analyse
from farandole.study.import_table import import_table

pytestmark = pytest.mark.ranks
TRAIN = str(Path(__file__).with_name("train.py"))
ONE, TWO = [1], [2]
LEARNS = """\
import os, sys
seed = int(os.environ["FARANDOLE_SEED"]) if "--seeded" in sys.argv else 0
for epoch, value in enumerate(map(float, sys.argv[1].split(",")), start=1):
    print(f"epoch {epoch} val_accuracy {value + seed / 1000:.6f}", flush=True)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def study(*arguments: str, workers: Any = TWO, script: str = TRAIN, **flags: Any) -> ScalingInfo:
    settled: dict[str, Any] = {"out": "out", "repeats": 1, "report": False, "keep_busy": True}
    settled |= {"no_epoch": True, "no_today": True, "no_calibration": True}
    command = [sys.executable, script, *arguments]
    return analyse(farandole.study(command, workers=workers, **(settled | flags)))


def sentences(info: ScalingInfo) -> dict[str, str]:
    return {verdict.kind: verdict.sentence for verdict in info.verdicts}


def test_the_serial_part_of_a_step_is_found() -> None:
    # 60 ms that all workers take, and 120 ms of 16 samples to share: 180 ms, then 120 ms.
    info = study(
        *("--batch", "{batch}", "--serial", "0.06", "--per-sample", "0.0075"),
        workers=[1, 2],
        params={"batch": [16]},
        scaling="strong",
        steps=16,
    )
    assert info.answer.speedup == pytest.approx(1.5, rel=0.1)
    assert info.curves[0].amdahl.serial_fraction.value == pytest.approx(1 / 3, abs=0.12)
    assert "2 workers: 1." in info.answer.headline
    assert "same accuracy" not in info.answer.headline


def test_a_straggler_is_named_with_what_the_others_wait() -> None:
    info = study("--serial", "0.05", "--slow-rank", "2", steps=16)
    found = sentences(info)
    assert found["straggler"].startswith("Held up by rank 1: the others wait for it for ")
    verdict = next(one for one in info.verdicts if one.kind == "straggler")
    assert verdict.evidence["share that the others wait"] == pytest.approx(0.5, abs=0.08)
    assert "contention" not in found


def test_waiting_for_data_is_measured() -> None:
    # 8 samples of 5 ms, then 30 ms of computing.
    info = study("--serial", "0.03", "--loading", "0.005", steps=16)
    assert sentences(info)["input_bound"].startswith("Bound by input: ")
    (split,) = info.each("split")
    assert split.data_s / split.step_s == pytest.approx(40 / 70, abs=0.1)


def test_a_checkpoint_of_one_rank_is_named_with_its_seconds() -> None:
    info = study("--serial", "0.02", "--checkpoint", "0.4", "--epochs", "4", steps=62)
    assert sentences(info)["one_rank_pauses"].startswith("Rank 0 alone paused ")
    verdict = next(one for one in info.verdicts if one.kind == "one_rank_pauses")
    each = verdict.evidence["seconds"] / verdict.evidence["pauses"]
    assert each == pytest.approx(0.4, abs=0.1)


def learning(
    *values: float, seeds: int = 3, seeded: bool = True, workers: Any = ONE
) -> ScalingInfo:
    Path("learn.py").write_text(LEARNS)
    return study(
        ",".join(map(str, values)),
        *(["--seeded"] if seeded else []),
        script="learn.py",
        workers=workers,
        measure="accuracy",
        seeds=seeds,
        metrics=["val_accuracy=val_accuracy ([0-9.]+)"],
    )


def test_a_curve_that_still_rises_is_not_stable() -> None:
    info = learning(*(k / 10 for k in range(9)), seeds=1)
    assert sentences(info)["not_stable"].startswith("Not stable yet: val_accuracy still improves")
    (row,) = info.each("metrics")
    assert row.stable_epoch is None


def test_a_plateau_is_found_where_it_begins() -> None:
    (row,) = learning(0.5, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, seeds=1).each("metrics")
    assert (row.stable_epoch, row.rising) == (3.0, 0)


# Planted mistakes: what is said, and what to do.

MISTAKES = {
    "no averaging": "Your 2 workers trained 2 separate models: nothing was averaged. Wrap the",
    "no broadcast": "Your 2 workers ended with different weights, although gradients were averaged",
    "no sampler": "Your 2 workers all trained on the same samples: the work was repeated",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_workers_that_do_not_train_together(mistake: str) -> None:
    said = io.StringIO()
    more: dict[str, Any] = {"steps": 8, "repeats": 2, "listener": listener(said)}
    answer = study("--mistake", mistake, "--serial", "0.01", **more).answer
    assert answer.headline.startswith(MISTAKES[mistake])
    # While the study goes on, too, and once: nobody waits for the report to hear of it.
    assert said.getvalue().count(MISTAKES[mistake]) == 1
    assert (answer.speedup, answer.workers) == (None, None)


def test_workers_that_each_go_through_all_of_the_data() -> None:
    flags = ("--mistake", "own shuffle", "--serial", "0.01", "--samples", "128")
    answer = study(*flags, workers=[1, 2], epochs=1).answer
    assert answer.headline.startswith(
        "Each of your 2 workers went through all 128 samples: an epoch did not shrink."
    )
    assert answer.speedup is None


def test_a_crash_of_rank_1_is_named() -> None:
    info = study("--mistake", "crash", steps=8)
    assert "rank 1, step 2, failed first: RuntimeError: planted crash" in info.answer.headline
    assert info.answer.next.startswith("Read launches/")


def test_a_rank_that_does_not_step_is_named() -> None:
    info = study("--mistake", "no step", steps=8)
    assert "rank 1 never called optimizer.step(), the others 8 times" in info.answer.headline


def test_seeds_that_nobody_uses_are_said_once() -> None:
    found = [
        verdict.sentence
        for verdict in learning(0.5, 0.9, seeds=2, seeded=False, workers=[1, 2]).verdicts
        if verdict.kind == "seeds_without_effect"
    ]
    assert found == [
        "All 2 seeds gave exactly the same val_accuracy; the command does not pass '{seed}' "
        "(1 worker, 2 workers)."
    ]


def test_two_seeds_never_say_the_same() -> None:
    info = learning(0.5, 0.9, seeds=2, workers=[1, 2])
    assert info.answer.accuracy == "inconclusive"
    verdict = next(one for one in info.verdicts if one.kind == "too_noisy")
    assert "only differences above 0.00" in verdict.sentence


def test_a_loss_that_is_no_number_is_said() -> None:
    Path("learn.py").write_text("for epoch in (1, 2):\n    print(f'epoch {epoch} loss nan')\n")
    info = study(
        script="learn.py", workers=ONE, measure="accuracy", seeds=1, metrics=[r"loss=loss (\S+)"]
    )
    assert sentences(info)["diverged"].startswith("1 of 1 run diverged: loss ended as NaN")


def test_a_wrong_flag_asks_for_a_new_study() -> None:
    answer = study("--epoch", "3", "--no-such-flag", steps=8, workers=ONE).answer
    assert answer.next.startswith("Correct the command's flags and start a new study")


def test_a_missing_script_is_found_before_the_first_launch() -> None:
    with pytest.raises(UsageError, match=r"nosuch\.py: there is no such script in"):
        study(script="nosuch.py", steps=8)
    assert not Path("out", "launches").exists()


def test_1e300_in_a_table_is_an_error_line(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("workers,epoch_s\n1,1e300\n2,5\n")
    with pytest.raises(UsageError, match=r"line 2: column 'epoch_s' has '1e300'"):
        import_table(table, tmp_path / "out")
