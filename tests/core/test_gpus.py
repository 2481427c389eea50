"""The table of cards."""

from __future__ import annotations

import pytest

from kvcalc.core.gpus import GPUS, find_gpu
from kvcalc.errors import UsageError


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("h100", "h100"),
        ("H100-80GB", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("a100 80gb", "a100-80gb"),
        ("A100-40", "a100-40gb"),
    ],
)
def test_cards_go_by_many_spellings(spelt: str, name: str) -> None:
    """Makers' words, case and dashes play no part."""
    assert find_gpu(spelt).name == name


def test_a_card_of_two_sizes_is_not_guessed() -> None:
    """a100 is two cards: both are named."""
    with pytest.raises(UsageError) as caught:
        find_gpu("a100")
    assert "a100-80gb" in caught.value.fix
    assert "a100-40gb" in caught.value.fix


def test_every_card_is_sourced_and_smaller_than_its_name() -> None:
    """Names with a size promise more than there is."""
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    for gpu in GPUS:
        assert "#" in gpu.source
        said = gpu.name.rpartition("-")[2].removesuffix("gb")
        if gpu.name.endswith("gb"):
            assert 0.9 * int(said) * 2**30 < gpu.bytes < int(said) * 2**30
