"""Moments: what a date, a datetime, a period or an ISO text stands for, as a `datetime` of Python."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from gpdsl.errors import GpdslError, quoted

_MONTH = re.compile(r"(\d{4})-(\d{2})")
_QUARTER = re.compile(r"(\d{4})-?Q([1-4])")
_YEAR_FIRST = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})((?:[T ].*)?)")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})((?:[T ].*)?)")
YEAR_LAST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})((?:[T ].*)?)")
"""Days that do not say which number is the month, or in which century they are."""
NAMED_MONTH = re.compile(
    r"\b\d{1,2}[\s.,-]*(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|"
    r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b[\s.,-]*\d",
    re.IGNORECASE,
)
"""Days and months with the names of months in English."""
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")


def as_datetimes(values: np.ndarray) -> np.ndarray:
    """An array of NumPy's times as objects, to the microsecond; None where there is none."""
    return values.astype("M8[us]").astype(object)


def moment_of(value: Any) -> datetime | None:
    """When a date, a datetime or a period begins; None for anything else."""
    if isinstance(value, datetime):
        return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, np.datetime64):
        return value.astype("M8[us]").item()
    return value.to_timestamp().to_pydatetime() if type(value).__name__ == "Period" else None


def moment_in(text: str) -> datetime | None:
    """The moment that an ISO text stands for, as of `2024-01-05`, `2024-01-05T14:30+02:00`, `2024-01` and `2024Q1`.

    Of an interval, `2024-01-01/2024-01-07`, it is where it begins. `2024/1/5` and `2024.1.5` are days as well,
    and so is `5.1.2024`: with points the day stands first everywhere.
    """
    if day := _DOTTED.fullmatch(text.strip()):
        text = f"{day[3]}-{int(day[2]):02}-{int(day[1]):02}{day[4]}"
    if day := _YEAR_FIRST.fullmatch(text.strip()):
        text = f"{day[1]}-{int(day[2]):02}-{int(day[3]):02}{day[4]}"
    text = text.partition("/")[0].strip()
    try:
        if found := _MONTH.fullmatch(text):
            return datetime(int(found[1]), int(found[2]), 1)
        if found := _QUARTER.fullmatch(text):
            return datetime(int(found[1]), 3 * int(found[2]) - 2, 1)
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def format_of(text: str) -> str:
    """How `strptime` and pandas would be told to read such a day; nothing of other texts. The day is first in doubt."""
    found = YEAR_LAST.fullmatch(text.strip())
    if found is None:
        return ""
    first, point, second, year, rest = found.groups()
    order = ("%m", "%d") if int(second) > 12 >= int(first) else ("%d", "%m")
    clock = f"{rest[0]}{':'.join(('%H', '%M', '%S')[: rest.count(':') + 1])}" if rest else ""
    return point.join((*order, "%Y" if len(year) > 2 else "%y")) + clock


def moment_by_digits(number: float) -> datetime | None:
    """The day that a whole number such as 20240105 spells; None for others."""
    return moment_in(f"{number:.0f}") if 1e7 <= number < 1e8 and number.is_integer() else None


def zone_name(moment: datetime) -> str:
    """The name of the zone of a moment, or its distance from UTC; nothing where it has none."""
    zone, offset = moment.tzinfo, moment.utcoffset()
    if zone is None or offset is None:
        return ""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # of zoneinfo, of pytz
    minutes, seconds = divmod(int(offset.total_seconds()), 60)
    if name:
        return str(name)
    if not minutes or seconds:
        return "UTC"
    return f"{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def zone_of(name: str) -> tzinfo:
    """The zone of a name. Raises GpdslError where this machine does not know it."""
    if name == "UTC":
        return UTC
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as problem:
        raise GpdslError(f"the time zone `{quoted(name)}` is not known here; pip install tzdata") from problem


def as_text(moment: date) -> str:
    """A moment in ISO's form: the date alone at midnight without a zone."""
    if isinstance(moment, datetime) and moment.tzinfo is None and not (moment - datetime.min) % timedelta(days=1):
        return moment.date().isoformat()
    return moment.isoformat()
