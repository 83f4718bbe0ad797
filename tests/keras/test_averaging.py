"""What lies between a Keras optimizer and the engine, with one worker and no Keras."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import farandole.torch as hvd
from farandole.errors import NotInitializedError
from farandole.keras import optimizer as module
from farandole.keras.optimizer import Averaging, Batch
from farandole.recorder import noise
from farandole.recorder.recorder import Recorder, Settings
from farandole.study.read import read_rank
from farandole.transport.reduction import AVERAGE

NOTHING = Batch(variables=[], gradients=[], wanted=frozenset())


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_one_worker_samples_the_batches_of_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, average: bool, scaled: bool
) -> None:
    monkeypatch.setattr(noise, "MOST_SHARE", 1e9)
    recorder = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
    monkeypatch.setattr(module, "current", lambda: recorder)
    gradients = np.random.default_rng(4).normal(size=(20, 2, 7)).astype(np.float32)
    hvd.init()
    try:
        made = Averaging(how=AVERAGE, wire=None, passes=2, average_passes=average, scale_local=True)
        made.scaled = scaled
        for first, second in gradients:
            assert made.reduce(NOTHING, [first, None]) is None
            reduced = made.reduce(NOTHING, [second, None])
            assert reduced is not None
            together = (first + second) / 2 if average else first + second
            assert reduced[0] is not None
            np.testing.assert_array_equal(reduced[0], together)
            recorder.trained_on(16)
            recorder.step()
    finally:
        hvd.shutdown()
    recorder.close()
    rank = read_rank(tmp_path / "rank-0.jsonl")
    assert rank is not None
    if scaled:
        assert rank.noise == ()
        return
    (found,) = rank.noise
    assert (found.update.tolist(), found.parts, found.samples.tolist()) == ([10, 20], 2, [16.0] * 2)
    sampled = gradients[[9, 19]].astype(np.float64)
    np.testing.assert_allclose(found.before[:, 0], (sampled**2).sum(axis=2).mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(
        found.after[:, 0], (sampled.mean(axis=1) ** 2).sum(axis=1), rtol=1e-5
    )


def test_what_a_step_of_ones_own_raised_is_no_matter_of_a_later_fit() -> None:
    hvd.init()
    try:
        made = Averaging(how=AVERAGE, wire=None, passes=1, average_passes=False, scale_local=True)
    finally:
        hvd.shutdown()
    # Its workers have parted: this is what a callback inside of a compiled step would raise.
    with pytest.raises(NotInitializedError):
        made.reduce_inside(NOTHING, [])
    with pytest.raises(KeyError), made.unwrapping():
        raise KeyError("of the data")

    def compiled() -> None:
        try:
            made.reduce_inside(NOTHING, [])
        except NotInitializedError as error:
            raise RuntimeError("as a backend puts it") from error

    with pytest.raises(NotInitializedError), made.unwrapping():
        compiled()
