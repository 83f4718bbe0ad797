from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.launch.slurm_jobs import parse_options


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        ([], ()),
        (
            ["account=abc,partition=gpu,time=1-00:00:00"],
            (("account", "abc"), ("partition", "gpu"), ("time", "1-00:00:00")),
        ),
        (["nodelist=n1,n2,time=5"], (("nodelist", "n1,n2"), ("time", "5"))),
        (["nodelist=n[1,3],exclusive"], (("nodelist", "n[1,3]"), ("exclusive", None))),
        (["mail-type=END,FAIL"], (("mail-type", "END,FAIL"),)),
        (["gres=gpu:a100:2", "time=5"], (("gres", "gpu:a100:2"), ("time", "5"))),
        (["time=5", "time=10"], (("time", "10"),)),
        (["--mem_per_cpu=4G , exclusive"], (("mem-per-cpu", "4G"), ("exclusive", None))),
        (["constraint=a=b"], (("constraint", "a=b"),)),
    ],
)
def test_options(texts: list[str], options: object) -> None:
    assert parse_options(texts) == options


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes=2", "use -N"),
        ("ntasks=2", "use -np"),
        ("array=1-4", "--sbatch array: leave it away, a job has one launch."),
        ("output=x", "followed"),
        ("gpu", "'gpu' is not an option"),
        ("=5", "is not an option"),
        ("time", "'time' is not an option"),
        ("time=", "must not be empty"),
        ("comment=a'b", "quotes"),
        ("comment=a\n#SBATCH --uid=0", "line breaks"),
        ("comment=a # b", "#"),
        ("A=abc", "long names"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_options([text])
    assert says in str(caught.value)
