"""Dates in many written forms, and each in ISO 8601: a data set that the package makes.

Twelve languages write the day, the month and the year in their own words and orders; the model has
to read which is which. No line can be read in two ways: months are written in words, in Roman
figures or in a place that the language's own words or the year's place fix ("am 03.05.1984",
"1984/05/03"), and years have four figures.
"""

import datetime
import random
from typing import NamedTuple

FIRST_YEAR = 1900
LAST_YEAR = 2099
SIZES = {"train": 16_000, "dev": 1_000, "test": 1_000}
"""How many different lines each split has."""

_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_UNITS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_TEENS = "tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth"
_ORDINALS = (
    *_UNITS,
    *f"{_TEENS} nineteenth twentieth".split(),
    *(f"twenty-{unit}" for unit in _UNITS),
    "thirtieth",
    "thirty-first",
)


class Language(NamedTuple):
    """How a language writes dates: forms, between bars, and the words in them, between spaces."""

    forms: str
    months: str
    short_months: str = ""
    weekdays: str = ""
    """From Monday on."""
    first: str = "1"
    """The first day of a month, as `{day}`."""


LANGUAGES = {
    "English": Language(
        "{d} {month} {y} | {month} {d}, {y} | {month} {ordinal}, {y} | {ordinal} of {month}, {y} | "
        "the {ordinal} of {month} {y} | the {ordinal_word} of {month}, {y} | "
        "{weekday}, {d} {month} {y} | {weekday}, {month} {d}, {y} | {short_month} {d}, {y} | "
        "{d}-{short_month}-{y} | {upper_month} {d}, {y} | {y}, {month} {d}",
        "January February March April May June July August September October November December",
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    ),
    "German": Language(
        "{d}. {month} {y} | den {d}. {month} {y} | {weekday}, {d}. {month} {y} | "
        "{weekday}, den {d}. {month} {y} | {d}. {short_month} {y} | am {dd}.{mm}.{y}",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
        "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    ),
    "French": Language(
        "{day} {month} {y} | le {day} {month} {y} | le {weekday} {day} {month} {y} | "
        "{day} {short_month} {y} | le {dd}/{mm}/{y}",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        first="1er",
    ),
    "Spanish": Language(
        "{d} de {month} de {y} | el {d} de {month} de {y} | {weekday}, {d} de {month} de {y} | "
        "el {dd}/{mm}/{y}",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        weekdays="lunes martes miércoles jueves viernes sábado domingo",
    ),
    "Portuguese": Language(
        "{d} de {month} de {y} | em {d} de {month} de {y} | {weekday}, {d} de {month} de {y}",
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        weekdays="segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    ),
    "Italian": Language(
        "{day} {month} {y} | {weekday} {day} {month} {y}",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre "
        "dicembre",
        weekdays="lunedì martedì mercoledì giovedì venerdì sabato domenica",
        first="1º",
    ),
    "Dutch": Language(
        "{d} {month} {y} | {weekday} {d} {month} {y} | {d} {short_month} {y} | op {dd}-{mm}-{y}",
        "januari februari maart april mei juni juli augustus september oktober november december",
        "jan. feb. mrt. apr. mei jun. jul. aug. sep. okt. nov. dec.",
        "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    ),
    "Swedish": Language(
        "den {d} {month} {y} | {weekday} den {d} {month} {y}",
        "januari februari mars april maj juni juli augusti september oktober november december",
        weekdays="måndag tisdag onsdag torsdag fredag lördag söndag",
    ),
    "Polish": Language(
        "{d} {month} {y} | {weekday}, {d} {month} {y} r. | {d} {roman} {y}",
        "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października "
        "listopada grudnia",
        weekdays="poniedziałek wtorek środa czwartek piątek sobota niedziela",
    ),
    "Hungarian": Language(
        "{y}. {month} {d}. | {y}. {month} {d}., {weekday} | {y}. {roman}. {d}.",
        "január február március április május június július augusztus szeptember október november "
        "december",
        weekdays="hétfő kedd szerda csütörtök péntek szombat vasárnap",
    ),
    "Russian": Language(
        "{d} {month} {y} г. | {weekday}, {d} {month} {y} г.",
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
        weekdays="понедельник вторник среда четверг пятница суббота воскресенье",
    ),
    "Japanese": Language(
        "{y}年{month}{d}日 | {y}年{month}{d}日{weekday}",
        "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
        weekdays="月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日",
    ),
    "figures": Language("{y}/{mm}/{dd} | {y}.{m}.{d}", "1 2 3 4 5 6 7 8 9 10 11 12"),
}

FORMS = tuple(
    (name, form) for name, language in LANGUAGES.items() for form in language.forms.split(" | ")
)
"""Every written form, as (language, template)."""


def write(date: datetime.date, form: tuple[str, str]) -> str:
    """Return `date` as `form`, one of `FORMS`, writes it.

    >>> write(datetime.date(1984, 5, 3), ("German", "den {d}. {month} {y}"))
    'den 3. Mai 1984'
    """
    language, template = LANGUAGES[form[0]], form[1]
    month = language.months.split()[date.month - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(0 if date.day in (11, 12, 13) else date.day % 10, "th")
    return template.format(
        y=date.year,
        m=date.month,
        mm=f"{date.month:02}",
        d=date.day,
        dd=f"{date.day:02}",
        day=language.first if date.day == 1 else date.day,
        ordinal=f"{date.day}{ending}",
        ordinal_word=_ORDINALS[date.day - 1],
        month=month,
        upper_month=month.upper(),
        short_month=language.short_months and language.short_months.split()[date.month - 1],
        roman=_ROMAN[date.month - 1],
        weekday=language.weekdays and language.weekdays.split()[date.weekday()],
    )


def generate(split: str, seed: int = 0, number: int | None = None) -> tuple[list[str], list[str]]:
    """Return `number` (or `SIZES[split]`) written dates of a split, and the same in ISO 8601.

    A date belongs to one split, in whatever form: no date of the dev and test sets is in the
    training set. Lines of a split differ, and depend on nothing but the arguments.
    """
    if split not in SIZES:
        raise ValueError(f"`split` must be one of {list(SIZES)}. Received: {split!r}")
    number = SIZES[split] if number is None else number
    dates = _dates_of(split, seed)
    if not 0 < number <= len(dates) * len(FORMS) // 4:  # drawing is quick while most are left
        raise ValueError(
            f"`number` must be from 1 to {len(dates) * len(FORMS) // 4} for the split {split!r}. "
            f"Received: {number}"
        )
    draw = random.Random(f"{seed} {split}")
    lines: dict[str, str] = {}
    while len(lines) < number:
        date = draw.choice(dates)
        lines.setdefault(write(date, draw.choice(FORMS)), date.isoformat())
    return list(lines), list(lines.values())


def _dates_of(split: str, seed: int) -> list[datetime.date]:
    """Return the dates of a split: 5 % each for dev and test."""
    first = datetime.date(FIRST_YEAR, 1, 1).toordinal()
    last = datetime.date(LAST_YEAR, 12, 31).toordinal()
    dates = [datetime.date.fromordinal(day) for day in range(first, last + 1)]
    random.Random(f"{seed} dates").shuffle(dates)
    part = len(dates) // 20
    return {"test": dates[:part], "dev": dates[part : 2 * part], "train": dates[2 * part :]}[split]
