"""The faults of masks, and the page that shows them."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.studies import masks

REPOSITORY = Path(__file__).resolve().parents[3]


def test_no_mask_of_ours_fails_but_where_no_layer_can_see_it():
    """Rows whose mask is lost before a layer is called, or has two meanings: see docs/masks.md."""
    unseen = {masks.compiled, masks.operator, masks.ambiguous}
    refused = {masks.foreign_numbers, masks.stretched}
    for fault in masks.FAULTS:
        expected = masks.RIGHT
        if fault.check in unseen:
            expected = masks.WRONG
        elif fault.check in refused:
            expected = masks.REFUSED
        assert masks.try_fault(fault, masks.Ours).verdict == expected, fault.title


def test_the_page_of_masks_shows_what_its_command_prints(capsys):
    for name in ("torch", "keras_hub"):
        pytest.importorskip(name, reason=f"needs {name}")
    page = (REPOSITORY / "docs" / "masks.md").read_text(encoding="utf-8")
    if masks.versions() not in page:
        pytest.skip(f"the page is of other versions than {masks.versions()}")
    assert main(["masks"]) == 0
    assert capsys.readouterr().out in page


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        (masks.implicit, "attend"),
        (masks.causal, "causal"),
        (masks.nothing_to_attend, "attend"),
        (masks.not_a_number, "attend"),
        (masks.left_padding, "attend"),
    ],
)
def test_a_check_of_masks_finds_a_layer_without(check, fault, monkeypatch):
    attend = masks.Ours.attend

    def without(self, x, mask=None, causal=False, **options):
        if fault == "causal":
            return attend(self, x, mask, **options)
        return attend(self, x + 0, causal=causal, **options)

    monkeypatch.setattr(masks.Ours, "attend", without)
    assert check(masks.Ours())
