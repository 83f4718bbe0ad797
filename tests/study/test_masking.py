"""Secrets do not get into a study's folder, and what is none stays."""

from __future__ import annotations

import pytest

from farandole.study.masking import mask


@pytest.mark.parametrize(
    ("given", "masked"),
    [
        (["--token", "abc"], ["--token", "***"]),
        (["--token=abc"], ["--token=***"]),
        (["-token", "abc"], ["-token", "***"]),
        (["--hf-token", "abc"], ["--hf-token", "***"]),
        (["--hf_token=abc"], ["--hf_token=***"]),
        (["--hubToken", "abc"], ["--hubToken", "***"]),
        (["--api-key", "abc"], ["--api-key", "***"]),
        (["--api_key=abc"], ["--api_key=***"]),
        (["--apiKey=abc"], ["--apiKey=***"]),
        (["--wandb-key", "abc"], ["--wandb-key", "***"]),
        (["--password", "12345"], ["--password", "***"]),
        (["--db.password=x=y"], ["--db.password=***"]),
        (["--secret", "a b"], ["--secret", "***"]),
        (["env", "WANDB_API_KEY=abc"], ["env", "WANDB_API_KEY=***"]),
        (["GITHUB_TOKEN=abc"], ["GITHUB_TOKEN=***"]),
        (["AWS_SECRET_ACCESS_KEY=abc"], ["AWS_SECRET_ACCESS_KEY=***"]),
        (["MY_KEY=abc"], ["MY_KEY=***"]),
        (["DB_PASSWORD="], ["DB_PASSWORD=***"]),
        (["s3.secret_key=abc"], ["s3.secret_key=***"]),
        (["https://me:pw@host/x"], ["https://me:***@host/x"]),
        (["--url=https://tok3n@host/x"], ["--url=https://***@host/x"]),
        (["postgres://u:p@h:5432/db"], ["postgres://u:***@h:5432/db"]),
        (["https://h/x?api_key=abc&n=3"], ["https://h/x?api_key=***&n=3"]),
        (["Authorization: Bearer abc"], ["Authorization: Bearer ***"]),
        (["hf_" + "a" * 30], ["***"]),
        (["x=ghp_" + "a" * 36], ["x=***"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--token"], ["--token"]),
        (["--token", "--secret", "abc"], ["--token", "--secret", "***"]),
    ],
)
def test_secrets_are_masked(given: list[str], masked: list[str]) -> None:
    assert mask(given) == tuple(masked)


@pytest.mark.parametrize(
    "given",
    [
        ["--tokens", "512"],
        ["--max-tokens", "512"],
        ["--max-tokens=512"],
        ["--token", "512"],
        ["--token=512"],
        ["--num-token", "5e3"],
        ["--pad-token", "<pad>"],
        ["--token-length", "64"],
        ["--key", "label"],
        ["--keys=a,b"],
        ["--monkey", "x"],
        ["--sort-key", "loss"],
        ["--author", "me"],
        ["--secretary", "x"],
        ["--auth-method", "none"],
        ["--tokenizer", "bpe"],
        ["ssh://git@host/x"],
        ["https://host/@x"],
        ["me@host"],
        ["python", "train.py", "--lr", "0.1", "data dir/a=b", ""],
    ],
)
def test_what_is_no_secret_stays(given: list[str]) -> None:
    assert mask(given) == tuple(given)
