"""Assertions of the shared test class explain themselves, as those in test modules do."""

import pytest

pytest.register_assert_rewrite("tests.transport.conformance")
