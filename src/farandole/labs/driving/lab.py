"""The driving lab as `farandole lab` knows it."""

from __future__ import annotations

from farandole.labs.driving.plan import LADDER, pilot, plan
from farandole.labs.driving.questions import QUESTIONS
from farandole.labs.lab import Lab, on_use

LAB = Lab(
    name="driving",
    title="driving: a data set too small to scale",
    line="time and loss by workers, why more do not pay, and from which size on they would",
    questions=QUESTIONS,
    published=("driving",),
    leading=("verdict", "size", "workers"),
    efforts=len(LADDER),
    data=on_use("data:describe_driving"),
    pilot=pilot,
    plan=plan,
    answer=on_use("driving.answers:answer"),
    corrections=on_use("driving.corrections:corrections"),
)
