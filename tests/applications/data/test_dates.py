"""Dates: hand-written examples, no line with two readings, splits that share no date."""

import datetime
import re

import pytest

from keras_attention.applications.data.made import dates

EXAMPLES = {
    "1984-05-03": [
        "3 May 1984",
        "May 3, 1984",
        "May 3rd, 1984",
        "the third of May, 1984",
        "Thursday, 3 May 1984",
        "3-May-1984",
        "den 3. Mai 1984",
        "Donnerstag, den 3. Mai 1984",
        "am 03.05.1984",
        "le jeudi 3 mai 1984",
        "le 03/05/1984",
        "el 3 de mayo de 1984",
        "quinta-feira, 3 de maio de 1984",
        "giovedì 3 maggio 1984",
        "op 03-05-1984",
        "torsdag den 3 maj 1984",
        "3 V 1984",
        "1984. május 3., csütörtök",
        "четверг, 3 мая 1984 г.",
        "1984年5月3日木曜日",
        "1984/05/03",
    ],
    "2011-03-01": ["1er mars 2011", "1º marzo 2011", "MARCH 1, 2011", "1. März 2011"],
    "1912-08-12": ["12th of August, 1912", "the twelfth of August, 1912", "12. Aug. 1912"],
    "2000-12-22": ["December 22nd, 2000", "22 déc. 2000", "2000. XII. 22."],
    "2099-01-31": ["the thirty-first of January, 2099", "31 stycznia 2099"],
}


@pytest.mark.parametrize("iso", EXAMPLES)
def test_examples(iso):
    date = datetime.date.fromisoformat(iso)
    written = {dates.write(date, form) for form in dates.FORMS}
    assert set(EXAMPLES[iso]) <= written


def test_no_line_has_two_readings():
    """Over each day of four years and every form."""
    reading = {}
    for day in range(4 * 365 + 1):
        date = datetime.date(1999, 1, 1) + datetime.timedelta(day)
        for form in dates.FORMS:
            assert reading.setdefault(dates.write(date, form), date) == date


def test_lines_have_all_that_is_needed():
    for language in dates.LANGUAGES.values():
        assert len(set(language.months.split())) == 12
        assert len(set(language.short_months.split())) in (0, 12)
        assert len(set(language.weekdays.split())) in (0, 7)
        assert bool(language.short_months) == ("{short_month}" in language.forms)
        assert bool(language.weekdays) == ("{weekday}" in language.forms)
    for form in dates.FORMS:
        written = {dates.write(datetime.date(1990, m, d), form) for m in (3, 7) for d in (4, 9)}
        assert len(written) == 4


def test_month_in_figures_only_where_its_place_is_known():
    marked = re.compile(r"^(am|le|el|op) \d\d[./-]\d\d[./-]\d{4}$|^\d{4}")
    line = datetime.date(1984, 5, 3)
    for form in dates.FORMS:
        written = dates.write(line, form)
        if not re.search(r"[^\W\d]", re.sub("^(am|le|el|op) ", "", written)):
            assert marked.match(written), written


@pytest.fixture(scope="module")
def splits():
    return {split: dates.generate(split, number=3000) for split in dates.SIZES}


def test_splits_share_no_date(splits):
    iso = {split: set(lines[1]) for split, lines in splits.items()}
    assert not iso["train"] & iso["dev"]
    assert not iso["train"] & iso["test"]
    assert not iso["dev"] & iso["test"]


def test_lines_differ_and_cover_forms_and_years(splits):
    written, iso = splits["train"]
    assert len(set(written)) == len(written) == len(iso) == 3000
    assert {date[5:7] for date in iso} == {f"{month:02}" for month in range(1, 13)}
    assert {date[8:] for date in iso} == {f"{day:02}" for day in range(1, 32)}
    years = {int(date[:4]) for date in iso}
    assert years == set(range(dates.FIRST_YEAR, dates.LAST_YEAR + 1))
    for line, date in zip(written, iso, strict=True):
        parsed = datetime.date.fromisoformat(date)
        assert line in {dates.write(parsed, form) for form in dates.FORMS}


def test_deterministic(splits):
    assert dates.generate("test", number=3000) == splits["test"]
    assert dates.generate("test", number=3000, seed=1) != splits["test"]
    assert dates.generate("dev", number=100)[0] == splits["dev"][0][:100]
    assert len(dates.generate("test")[0]) == dates.SIZES["test"]


@pytest.mark.parametrize("arguments", [("valid",), ("dev", 0, 0), ("dev", 0, 10**6)])
def test_refused(arguments):
    with pytest.raises(ValueError, match="Received: (0|1000000|'valid')"):
        dates.generate(*arguments)
