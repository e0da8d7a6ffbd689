"""What people type becomes integers, or an error that shows the value and an example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.cli import arguments
from apportion.core.units import MAX_POOL_MILLI


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0), ("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("8h", 28_800_000), ("1d", 86_400_000),
        ("1h30m", 5_400_000), ("1.5h", 5_400_000), ("1 d", 86_400_000), ("2W", 1_209_600_000),
    ],
)  # fmt: skip
def test_durations(text: str, expected: int) -> None:
    assert expected == arguments.duration_ms(text)


@pytest.mark.parametrize("text", ["10", "", "m", "-5m", "5 minutes", "1h 5", "0.0001s", "10mm", "1h30"])
def test_bad_durations_show_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="write") as caught:
        arguments.duration_ms(text)

    assert repr(text) in str(caught.value)


@given(st.integers(min_value=1, max_value=MAX_POOL_MILLI))
def test_gpus_round_trip_exactly(milli: int) -> None:
    whole, rest = divmod(milli, 1000)

    assert milli == arguments.gpus_milli(f"{whole}.{rest:03d}")


@pytest.mark.parametrize("text", ["0", "-1", "0.0005", "two", "1e99", "nan", "inf", "16385", ""])
def test_bad_gpus_show_the_value(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        arguments.gpus_milli(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("512", 512), ("512MiB", 512), ("40GiB", 40_960), ("1.5 TiB", 1_572_864), ("0.5gib", 512)]
)
def test_memory(text: str, expected: int) -> None:
    assert expected == arguments.memory_mib(text)


@pytest.mark.parametrize("text", ["40GB", "0", "-1GiB", "much", "0.3MiB", "", "GiB", "inf"])
def test_bad_memory_shows_the_value(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        arguments.memory_mib(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("text", "expected"), [("4", 4_000), ("0.5", 500), ("256", 256_000)])
def test_processors(text: str, expected: int) -> None:
    assert expected == arguments.cpu_milli(text)


@pytest.mark.parametrize("text", ["0", "-1", "0.0005", "many"])
def test_bad_processors_show_the_value(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        arguments.cpu_milli(text)

    assert repr(text) in str(caught.value)


def test_labels() -> None:
    assert arguments.label("gen=sxm5") == ("gen", "sxm5")
    assert arguments.label("nvme=") == ("nvme", "")
    with pytest.raises(ValueError, match="'gen' is not a label"):
        arguments.label("gen")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("35%", 350_000), ("0.35", 350_000), ("350000ppm", 350_000), ("1", 1_000_000), ("0", 0), ("12.5 %", 125_000)],
)
def test_shares(text: str, expected: int) -> None:
    assert expected == arguments.share_ppm(text)


@pytest.mark.parametrize("text", ["35", "101%", "-1%", "half", "1000001ppm", "0.0000001"])
def test_bad_shares(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        arguments.share_ppm(text)

    assert repr(text) in str(caught.value)


def test_gpu_hours() -> None:
    assert arguments.gpu_hours_us("512") == 512 * 3_600_000_000
    assert arguments.gpu_hours_us("0.5") == 1_800_000_000


@pytest.mark.parametrize("text", ["0", "-3", "many"])
def test_bad_gpu_hours(text: str) -> None:
    with pytest.raises(ValueError):
        arguments.gpu_hours_us(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400_000), ("1970-01-01T00:00:01Z", 1_000), ("1970-01-01T01:00+01:00", 0),
        ("1700000000123", 1_700_000_000_123), ("1970-01-01T00:00:00.250", 250),
    ],
)  # fmt: skip
def test_instants_are_utc(text: str, expected: int) -> None:
    assert expected == arguments.instant_ms(text)


def test_a_bad_instant_shows_the_forms() -> None:
    with pytest.raises(ValueError, match="'yesterday' is not a time"):
        arguments.instant_ms("yesterday")


def test_an_instant_may_be_told_by_how_long_it_is_from_now() -> None:
    assert arguments.instant_or_after_ms("2h", 1_000) == 7_201_000
    assert arguments.instant_or_after_ms("1970-01-02", 1_000) == 86_400_000
    with pytest.raises(ValueError, match="'soon' is not a time"):
        arguments.instant_or_after_ms("soon", 1_000)


@given(st.text())
def test_any_os_user_becomes_a_principal(name: str) -> None:
    token = arguments.principal_of(name)

    assert token == arguments.checked_principal(token)


def test_a_principal_given_by_hand_is_never_changed() -> None:
    assert arguments.checked_principal("ana_b-1") == "ana_b-1"
    with pytest.raises(ValueError, match=r"'a\.b' is not a principal"):
        arguments.checked_principal("a.b")
