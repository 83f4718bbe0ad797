"""Pictures and scripts by vl-convert."""

from __future__ import annotations

from farandole.report.charts.scaling import scaling
from farandole.report.render import bundle, pictures
from tests.report.builders import Words, study
from tests.report.charts.drawn import drawn


def test_a_picture_holds_its_words_as_text() -> None:
    svg = pictures(drawn(scaling([study()])), ("svg",))["svg"].decode()
    for word in ("speedup", "workers", "ideal", "1.85x"):
        assert f">{word}</text>" in svg


def test_hostile_names_stay_text_in_pictures() -> None:
    from farandole.report.charts.accuracy import by_epoch

    name = "<script>x</script>"
    svg = pictures(drawn(by_epoch([study(words=Words(metric=name))])), ("svg",))["svg"].decode()
    assert "&lt;script&gt;x&lt;/script&gt;" in svg
    assert "<script" not in svg


def test_no_pictures_are_made_that_nobody_asked_for() -> None:
    assert pictures(drawn(scaling([study()])), ()) == {}


def test_the_bundle_cannot_end_its_element() -> None:
    script = bundle()
    assert "vegaEmbed" in script
    assert "</script" not in script.lower()
    assert "<!--" not in script
