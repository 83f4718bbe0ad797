"""The labs on transfer learning as `farandole lab` knows them."""

from __future__ import annotations

import pytest

from farandole.errors import DataError
from farandole.labs.scripts import published_path
from tests.labs.trained import here
from tests.labs.transfer.build import LABS

BOTH = pytest.mark.parametrize("name", LABS)


@BOTH
def test_it_has_its_own_name_and_published_table(name: str) -> None:
    lab = LABS[name]
    assert lab.name == name
    assert lab.efforts > 5
    assert set(lab.leading) < {question.key for question in lab.questions}
    assert all(published_path(table).is_file() for table in lab.published)


@BOTH
def test_a_folder_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="there is nothing"):
        LABS[name].data(here("nowhere"))
