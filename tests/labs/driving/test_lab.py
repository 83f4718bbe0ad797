"""The driving lab as a whole."""

from __future__ import annotations

import pytest

from farandole.errors import DataError
from farandole.labs.driving.lab import LAB
from farandole.labs.scripts import published_path
from tests.labs.trained import here


def test_it_is_a_lab_whose_published_tables_are_there() -> None:
    assert LAB.efforts > 5
    keys = {question.key for question in LAB.questions}
    assert len(keys) == len(LAB.questions)
    assert set(LAB.leading) < keys
    assert all(published_path(name).is_file() for name in LAB.published)


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match="there is nothing"):
        LAB.data(here("nowhere"))
