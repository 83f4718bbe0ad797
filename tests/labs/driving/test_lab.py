"""The driving lab as a whole."""

from __future__ import annotations

import pytest

from farandole.errors import DataError
from farandole.labs.driving.lab import LAB
from farandole.labs.lab import Lab
from farandole.labs.scripts import published_path
from tests.labs.trained import asked, here


def test_it_is_a_lab_whose_published_tables_are_there() -> None:
    lab: Lab = LAB
    assert lab.efforts > 5
    keys = {question.key for question in lab.questions}
    assert len(keys) == len(lab.questions)
    assert set(lab.leading) < keys
    assert all(published_path(name).is_file() for name in lab.published)


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match="there is nothing"):
        LAB.data(asked(data=here("nowhere")))
