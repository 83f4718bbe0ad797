"""A lab on transfer learning as `farandole lab` knows it."""

from __future__ import annotations

from functools import partial

from farandole.labs.lab import Lab, on_use
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.plan import pilot, plan
from farandole.labs.transfer.questions import QUESTIONS


def transfer_lab(kind: Kind, *, title: str, line: str) -> Lab:
    """Return the lab of a kind; its corrections are in its own folder."""
    return Lab(
        name=kind.name,
        title=title,
        line=line,
        questions=QUESTIONS,
        published=(kind.published,),
        leading=("times", "keeping_accuracy", "sixteen"),
        efforts=len(kind.ladder),
        data=on_use(f"data:describe_{kind.name}"),
        pilot=partial(pilot, kind),
        plan=partial(plan, kind),
        answer=partial(on_use("transfer.answers:answer"), kind),
        corrections=on_use(f"{kind.name}.corrections:corrections"),
        beside={kind.published: ("workers",)},
        original=True,
        check_weights=on_use("models.weights:check"),
    )
