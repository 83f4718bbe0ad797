"""What the driving lab got wrong, and the right account of it."""

from __future__ import annotations

from farandole.format import listed, plural
from farandole.labs.averaging import exchange, shown_by
from farandole.labs.driving.questions import METRIC, four
from farandole.labs.driving.workers import constant_mse
from farandole.labs.lab import Correction, Found
from farandole.labs.settings import settings_of


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the run that shows the right account."""
    return (
        Correction(
            said="The weights of all workers are averaged once an epoch.",
            right=(
                "Gradients are averaged, in every step, before the update: all workers always have "
                "the same weights, and averaging these would change nothing."
            ),
            shown_by=_averaged(found),
        ),
        Correction(
            said="The model's accuracy is given beside its loss.",
            right=(
                "Accuracy counts exact hits among classes and means nothing for a steering angle. "
                "A regression is judged by its error, beside that of the best constant."
            ),
            shown_by=_errors(found),
        ),
    )


def _averaged(found: Found) -> str:
    several = [
        launch
        for one in settings_of(found, "workers", "recipes")
        for launch in one.launches
        if launch.outcome == "ok" and launch.cell.workers > 1
    ]
    if not several:
        return "No launch on several workers ran to its end here."
    return f"Here, {shown_by(exchange(max(several, key=lambda one: one.cell.workers)))}."


def _errors(found: Found) -> str:
    shown = []
    constant = None
    for one in settings_of(found, "workers"):
        loss = one.final(METRIC)
        constant = constant or constant_mse(one)
        if loss is not None:
            shown.append(f"{four(loss.value)} on {plural(one.workers, 'worker')}")
    if not shown:
        return "No launch ran to its end here."
    beside = f", beside {four(constant)} of the best constant" if constant is not None else ""
    return f"Mean squared errors here: {listed(shown)}{beside}."
