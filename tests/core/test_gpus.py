"""The table of cards."""

from __future__ import annotations

import pytest

from kvcalc.core.gpus import LEAST_SHARE, cards, counted, find_gpu, plain
from kvcalc.errors import UsageError

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("h100", "h100"),
        ("H100-80GB", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("a100 80gb", "a100-80gb"),
        ("A100-40", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("l4", "l4"),
        ("l40", "l40"),
        ("L40S", "l40s"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
        ("Quadro RTX 8000", "rtx-8000"),
        ("DGX Spark", "gb10"),
        ("rtx 3060 12GB", "rtx-3060"),
        ("mi210", "mi210"),
    ],
)
def test_cards_go_by_many_spellings(spelt: str, name: str) -> None:
    """As the driver, torch and people write them: makers' words, case and dashes play no part."""
    assert find_gpu(spelt).name == name


@pytest.mark.parametrize("gpu", cards(), ids=lambda gpu: gpu.name)
def test_every_card_is_found_by_its_name_and_as_it_is_printed(gpu: object) -> None:
    name, title = getattr(gpu, "name", ""), getattr(gpu, "title", "")
    assert find_gpu(name) is gpu
    if sum(other.title == title for other in cards()) == 1:
        assert find_gpu(title) is gpu


@pytest.mark.parametrize(
    ("name", "own", "foreign"), [("a100", ("a100-80gb", "a100-40gb"), "a10g"), ("v100", ("v100-32gb",), "t4")]
)
def test_a_card_of_two_sizes_is_not_guessed(name: str, own: tuple[str, ...], foreign: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(name)
    assert all(each in caught.value.fix for each in own)
    assert foreign not in caught.value.fix


@pytest.mark.parametrize("name", ["", "potato", "rtx", "rtx 3080 20gb", "h100 40gb"])
def test_what_is_no_card_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        find_gpu(name)


def test_totals_are_kept_apart() -> None:
    """nvidia-smi prints 24,564 MiB of a 4090; CUDA reports 24,080 to 24,218."""
    card = find_gpu("4090")
    assert (card.driver_bytes, card.bytes) == (24564 * MIB, 24080 * MIB)
    assert card.bytes < card.most_bytes < 24564 * MIB


def test_reported_totals() -> None:
    """3090: 23.55 GiB at least; T4: 14.56; H100: 79.18; H200: 139.81."""
    sizes = {name: round(find_gpu(name).bytes / GIB, 2) for name in ("rtx-3090", "t4", "h100", "h200")}
    assert sizes == {"rtx-3090": 23.55, "t4": 14.56, "h100": 79.18, "h200": 139.81}


def test_every_card_is_sourced_and_smaller_than_its_name() -> None:
    assert len(cards()) >= 70
    assert len({gpu.name for gpu in cards()}) == len(cards())
    for gpu in cards():
        assert gpu.source
        assert gpu.architecture.startswith(("sm", "gfx"))
        assert 0.87 * gpu.nominal_gb * 10**9 < gpu.bytes <= gpu.most_bytes <= 1.025 * gpu.nominal_gb * GIB
        assert gpu.bytes <= (gpu.driver_bytes or gpu.bytes)


def test_a_total_that_no_report_shows_is_marked_and_on_the_safe_side() -> None:
    card = find_gpu("a10g")
    assert card.assumed
    assert card.bytes == int(23028 * MIB * LEAST_SHARE)
    measured = [gpu for gpu in cards() if gpu.driver_bytes and not gpu.assumed]
    assert all(gpu.bytes >= LEAST_SHARE * gpu.driver_bytes for gpu in measured if gpu.driver_bytes)


@pytest.mark.parametrize(
    ("spelt", "name", "size"),
    [
        ("m1 pro 16gb", "m1-pro-16gb", 16 * GIB * 2 // 3),
        ("Apple M3 Max 64 GB", "m3-max-64gb", 48 * GIB),
        ("M2 (24GB)", "m2-24gb", 16 * GIB),
    ],
)
def test_apple_chips_take_what_metal_recommends(spelt: str, name: str, size: int) -> None:
    found = find_gpu(spelt)
    assert (found.name, found.bytes, found.architecture) == (name, size, "metal")


def test_an_apple_size_without_a_report_is_refused() -> None:
    with pytest.raises(UsageError, match="no report shows Metal's limit"):
        find_gpu("m4 max 128gb")


def test_several_of_one_card() -> None:
    assert counted("2x4090") == (2, "4090")
    assert counted("8 x h100") == (8, "h100")
    assert counted("h100") == (1, "h100")
    assert plain("NVIDIA GeForce RTX 4090") == "rtx4090"


@pytest.mark.parametrize("name", ["RTX 2060 Founders Edition", "2060 oc"])
def test_words_that_say_nothing_of_the_size_leave_two_cards(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_gpu(name)
    assert "rtx-2060-6gb" in str(raised.value.fix) + str(raised.value)
    assert "rtx-2060-12gb" in str(raised.value.fix) + str(raised.value)
