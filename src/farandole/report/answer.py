"""What is said beside the headline, the same on the page, in Markdown and on a terminal."""

from __future__ import annotations

from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.verdict import Verdict


def sentences(info: ScalingInfo) -> tuple[str, ...]:
    """Return what follows the headline: what the user has today, then the rest."""
    said = info.answer.sentences
    if info.today is None or info.answer.void is not None or info.today.sentence in said:
        return said
    return (*said[:1], info.today.sentence, *said[1:])


def verdicts(info: ScalingInfo) -> tuple[Verdict, ...]:
    """Return all verdicts, first the reasons why cells are void that the headline does not name."""
    void = [
        Verdict(
            kind=found.kind,
            severity="void",
            sentence=f"{found.label}: {found.sentence}",
            action=found.mend,
            evidence=found.evidence,
            labels=(found.label,),
        )
        for found in info.voids
        if found.sentence not in info.answer.headline
    ]
    return (*void, *info.verdicts)
