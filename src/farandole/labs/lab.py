"""What a lab is: its questions, the studies that answer them, and what they found.

Records, the list of labs, and where their files are. `run.py` makes the studies that a lab plans,
the lab answers its questions from them, and `report.py` shows it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from farandole.errors import MissingExtraError, UsageError
from farandole.report.document import Figure
from farandole.report.table import Table
from farandole.study.codec import decode, encode
from farandole.study.folder import shown
from farandole.study.options import option_flags, read_flags
from farandole.study.records import Study

if TYPE_CHECKING:
    from farandole.labs.questions import Question
    from farandole.model.analyse import ScalingInfo

Size = Literal["quick", "budget", "full"]
"""About a minute; what fits a budget of time; the lab's literal protocol."""

_KERAS = ("keras", "torch")
# In the order in which they are listed, with the frameworks that their scripts import. What data
# need beside them (Pillow, scikit-learn) depends on the data: their loaders say so.
_FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "cifar10": ("torch",),
    **dict.fromkeys(("mnist", "driving", "fruits", "caltech", "faces"), _KERAS),
}
_EXTRAS = {"torch": "torch", "keras": "labs"}
_CPU_BUILD = (
    " (a machine without a GPU can do with the smaller CPU build of torch; pytorch.org shows its "
    "pip line)"
)
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for, and the room that there is."""

    size: Size
    budget_s: float | None
    """For size "budget"; None for the others."""
    data: Path | None
    """Real data; None: what is generated or bundled."""
    workers: tuple[int, ...]
    """Numbers of workers; empty when left open."""
    recipes: tuple[str, ...]
    """Ways to set the learning rate (farandole.recipes); empty when left open."""
    cores: int
    weights: str | None = None
    """What a base network begins with: "pretrained", "none", or a file; None when left open."""

    def command(self, lab: str, out: str | None = None) -> tuple[str, ...]:
        """Return the command line that asks for this."""
        size = ("--budget", flag_time(self.budget_s)) if self.budget_s else (f"--{self.size}",)
        return (
            *("farandole", "lab", lab, *size),
            *(("--data", str(self.data)) if self.data is not None else ()),
            *(("-np", ",".join(map(str, self.workers))) if self.workers else ()),
            *(("--recipe", ",".join(self.recipes)) if self.recipes else ()),
            *(("--weights", self.weights) if self.weights is not None else ()),
            *(("--out", out) if out is not None else ()),
        )


def flag_time(seconds: float) -> str:
    """Write a time as flags take it: 15m, 90s."""
    whole = max(1, round(seconds))
    return f"{whole // 60}m" if whole % 60 == 0 else f"{whole}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """What a lab's data are."""

    source: str
    """In words: "MNIST from the given folder", "scikit-learn's digits"."""
    train: int
    test: int
    sample: str
    """One sample in words: "28x28 grey", "66x200 RGB"."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read, with the reason each."""
    class_counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By class: samples to train on and to test on; empty for a quantity."""
    sides: tuple[int, ...] = ()
    """Smallest, mean and largest side of the image files, in pixels, before they are scaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One study: what `farandole.study()` is given."""

    name: str
    """Its folder below the lab's studies/."""
    title: str
    """What it is for, in words."""
    options: Mapping[str, Any]
    """By the names of `study.options`: {"workers": (1, 2), "params": {"batch": 32}, "seeds": 3}."""
    script: str
    """A file of examples/: "cifar10.py"."""
    arguments: tuple[str, ...]
    """Of the script, with placeholders."""
    estimate_s: float
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that the script needs: {"KERAS_BACKEND": "torch"}."""
    worth_repeating: bool = True
    """Whether time that is left may go into further runs: they narrow its intervals."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Its options as flags of `farandole study`."""
        return tuple(option_flags(self.options))

    @property
    def runs(self) -> int:
        """How often each setting is run."""
        return int(self.options[self._repeating])

    def with_runs(self, runs: int) -> Planned:
        """Return the study with so many runs of each setting."""
        return replace(self, options={**self.options, self._repeating: runs})

    @property
    def _repeating(self) -> str:
        return "seeds" if self.options.get("measure") == "accuracy" else "repeats"

    def command(self, here: Path) -> tuple[str, ...]:
        """Return what the study runs, given in a folder."""
        # Without "python": the first one on PATH need not be the one that has Farandole.
        return (shown(examples_path(self.script), here), *self.arguments)

    def shell_line(self, here: Path, **session: Any) -> str:
        """Return the study as a command to type in a folder; `session` says where it goes."""
        resumed = "resume" in session
        words = option_flags(session if resumed else {**self.options, **session})
        words += () if resumed else ("--", *self.command(here))
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environ.items()]
        return " ".join([*variables, "farandole study", shlex.join(words)])

    def to_json(self) -> dict[str, Any]:
        """Return what lab.json and a dry run have of it: its flags as one types them."""
        content: dict[str, Any] = encode(self, leave=("options", "environ"))
        pairs = [list(pair) for pair in self.environ.items()]
        return {**content, "flags": list(self.flags), "environ": pairs}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Planned:
        """Return the study that `to_json` wrote."""
        options, environ = read_flags(content["flags"]), dict(content["environ"])
        return decode(cls, content, options=options, environ=environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where the run differs from the lab, or had to choose: "lab / here"."""

    what: str
    lab: str
    here: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All studies of a lab at one size."""

    studies: tuple[Planned, ...]
    choices: tuple[Choice, ...]

    @property
    def estimate_s(self) -> float:
        """What all of it takes."""
        return sum(study.estimate_s for study in self.studies)

    def to_json(self) -> dict[str, Any]:
        """Return what lab.json and a dry run have of it."""
        return {"studies": [one.to_json() for one in self.studies], "choices": encode(self.choices)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_json` wrote."""
        return decode(cls, content, studies=tuple(map(Planned.from_json, content["studies"])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What a pilot study measured of one workload on one worker with one thread."""

    samples_per_s: float
    startup_s: float
    """From the launch to the first step, and from the last to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with its answer in words, from figures that the tables hold."""

    question: Question
    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    """The first is the question's own: report.json has it under the question's key."""
    figures: tuple[Figure, ...] = ()
    lead: int = 2
    """How many of the sentences are the answer, above table and figure; the rest is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What the original got wrong, and the right account of it."""

    said: str
    right: str
    shown_by: str
    """The run or the arithmetic that shows it, with its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a lab's answers are made from."""

    asked: Asked
    data: DataFacts
    plan: Plan
    studies: Mapping[str, ScalingInfo]
    """By `Planned.name`; one that could not be made is not there."""
    records: Mapping[str, Study]
    """The same as plain records, for what the analysis does not show: metrics of single ranks."""
    published: Mapping[str, ScalingInfo]
    """By the name of the file in published/."""
    published_records: Mapping[str, Study] = field(default_factory=dict)
    """The same as plain records, for projections."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By name of a study that could not be made: why it has no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """One lab. Its functions compute and do nothing else, apart from `data`, which reads."""

    name: str
    title: str
    line: str
    """For the list of labs: what it shows, in one line."""
    questions: tuple[Question, ...]
    published: tuple[str, ...]
    """Files of published/ without ending, in the order in which the report shows them."""
    leading: tuple[str, ...]
    """Keys of the questions whose first sentences open the report; empty: the first three."""
    efforts: int
    """How many sizes `plan` knows, for fitting a budget: 0 is the least useful one."""
    data: Callable[[Path | None], DataFacts]
    """Look at the data of a folder as a whole, or at what stands in for them without one. Raises
    DataError where they are not what the lab needs: what was expected, and what found."""
    pilot: Callable[[Asked], tuple[Planned, ...]]
    """Return short studies that measure the rates which `plan` needs, under their names."""
    plan: Callable[[Asked, DataFacts, Mapping[str, Rate], int], Plan]
    """Return the studies of a size, by the pilot's rates (without any, the lab guesses) and an
    effort from 0 on, of which a larger one takes no less time. `quick` and `full` have one plan."""
    corrections: Callable[[Found], tuple[Correction, ...]]
    """Say what the original got wrong."""
    original: bool = False
    """Whether --recipe original, the lab's own learning rate, is one of its recipes."""
    check_weights: Callable[[str], None] | None = None
    """Refuses what --weights names where the lab's base network cannot begin with it; None: it has
    no such network."""
    introduction: str = ""
    """What the lab is about and why, in about 80 words."""
    lab_found: Mapping[str, str] = field(default_factory=dict)
    """By key of a question whose answer does not say it: what the lab found, for the overview."""
    original_data: Mapping[str, str] = field(default_factory=dict)
    """The lab's own data by row of the report's table: "source", "training samples", "classes",
    "test samples", "training samples per class", "image size", and whatever else it had."""
    method: tuple[tuple[str, str, str], ...] = ()
    """Rows "what / lab / here" beyond the plan's choices."""
    conclusion: str = ""
    """A template like `Question.say`. It sees `found` and `answers`, the answers by key."""
    references: tuple[str, ...] = ()

    def answer(self, found: Found) -> tuple[Answered, ...]:
        """Answer every question, in order; one without figures says what is missing."""
        from farandole.labs.questions import answers  # imports the model

        return answers(self.questions, found)


def lab_names() -> tuple[str, ...]:
    """Name the labs."""
    return tuple(_FRAMEWORKS)


def load_lab(name: str) -> Lab:
    """Return a lab.

    Raises:
        UsageError: There is none of this name; the message lists those that there are.
    """
    if name not in lab_names():
        raise UsageError(f"there is no lab {name!r}. Labs: {', '.join(lab_names())}.")
    lab: Lab = import_module(f"farandole.labs.{name}").LAB
    return lab


def check_packages(name: str, find: Callable[[str], object] = find_spec) -> None:
    """Refuse a lab whose script could not be run; `find` finds a module that can be imported.

    Raises:
        MissingExtraError: A package is not installed; names the extra that brings it.
    """
    missing = [module for module in _FRAMEWORKS.get(name, ()) if not find(module)]
    if missing:
        extras = ",".join(_EXTRAS[module] for module in missing)
        raise MissingExtraError(
            f"farandole lab {name} needs {' and '.join(missing)}, which this Python "
            f"({sys.executable}) does not have. Run: pip install 'farandole[{extras}]'"
            f"{_CPU_BUILD if 'torch' in missing else ''}."
        )


def examples_path(name: str) -> Path:
    """Return the path of an example: "cifar10.py".

    In a checkout `labs/examples` is a link to the `examples` folder at its top, so that there is
    one copy for readers and for `farandole lab`; a wheel has the files themselves.
    """
    return (_HERE / "examples" / name).resolve()


def published_path(name: str) -> Path:
    """Return the path of a table of published figures, named without its ending."""
    return _HERE / "published" / f"{name}.csv"
