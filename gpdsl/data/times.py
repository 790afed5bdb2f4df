"""Times as inputs: numbers of days, or of another unit, since the first time of the fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime

import numpy as np

from gpdsl.data.columns import Found
from gpdsl.data.errors import NotFinite, shown
from gpdsl.data.file_mistakes import NotATime, ZonesDiffer
from gpdsl.data.table import format_of, moment_by_digits, moment_in, zone_name, zone_of
from gpdsl.data.values import Wrong, place_of
from gpdsl.errors import GpdslError
from gpdsl.language.model import Input
from gpdsl.language.vocabulary import TIME_UNITS

SECOND = np.timedelta64(1_000_000, "us")


@dataclass(frozen=True)
class Calendar:
    """When the times of a fit are counted from, in ISO's form, and the zone of each input, empty without one.

    Moments with a zone are those of UTC.
    """

    origin: str
    zones: Mapping[str, str]

    def numbers(self, moments: np.ndarray, unit: str) -> np.ndarray:
        """Moments as numbers of a unit since the origin."""
        return (moments - np.datetime64(self.origin)) / (TIME_UNITS[unit] * SECOND)

    def moments(self, numbers: np.ndarray, unit: str) -> np.ndarray:
        """The moments that numbers stand for, to the microsecond. Raises GpdslError where these are in no calendar."""
        origin, seconds = np.datetime64(self.origin), np.asarray(numbers) * TIME_UNITS[unit]
        first, last = ((np.datetime64(f"{year:04}-01-01") - origin) / SECOND for year in (MINYEAR + 1, MAXYEAR))
        if not np.all((first <= seconds) & (seconds <= last)):
            raise GpdslError(f"a time, in {unit}s since {self.origin}, is before the year 2 or after 9998")
        return origin + np.rint(seconds * 1e6).astype("m8[us]")

    def dates(self, name: str, moments: np.ndarray) -> np.ndarray:
        """Moments as data hold them: of NumPy where they have no zone, else Python's in the zone of the input."""
        zone = self.zones.get(name)
        if not zone:
            return moments
        known, found = zone_of(zone), np.empty(moments.shape, dtype=object)
        found.ravel()[:] = [each.replace(tzinfo=UTC).astimezone(known) for each in moments.ravel().tolist()]
        return found


def moments_of(found: Found, zone: str | None, unit: str) -> tuple[np.ndarray, str]:
    """The moments of a column, in UTC where they have a zone, and this zone.

    `zone` is that of an earlier fit, None without one: either all have a zone, or none. Raises Wrong for what is no
    time, and where one is missing. Whole numbers are years where that is the unit, and days as 20240105 spells one.
    """
    flat = [_moment(each, unit == "year") for each in found.values.ravel().tolist()]
    _refuse(found, [each is None for each in flat])
    moments: list[datetime] = flat  # type: ignore[assignment]
    named = zone_name(moments[0]) if zone is None and moments else zone or ""
    odd = [(each.utcoffset() is None) != (not named) for each in moments]
    if any(odd):
        column, row, _ = place_of(found, np.array(odd).reshape(found.values.shape))
        where = "that in row 1" if zone is None else "those of the fit"
        has = ("no time zone", f"unlike {where}: `{named}`") if named else ("a time zone", f"unlike {where}")
        raise Wrong(ZonesDiffer(column, row, *has))
    if named:
        zones = {zone_name(each) for each in moments}
        named = zone or (zones.pop() if len(zones) == 1 else "UTC")
        moments = [each.astimezone(UTC).replace(tzinfo=None) for each in moments]
    return np.array(moments, dtype="M8[us]").reshape(found.values.shape), named


def _moment(value: object, years: bool) -> datetime | None:
    if years and isinstance(value, float) and MINYEAR <= value <= MAXYEAR and value.is_integer():
        return datetime(int(value), 1, 1)
    if years and isinstance(value, str) and re.fullmatch(r"\s*[0-9]{4}\s*", value) and int(value) >= MINYEAR:
        return datetime(int(value), 1, 1)
    if isinstance(value, float):
        return moment_by_digits(value)
    return value if isinstance(value, datetime) else moment_in(value) if isinstance(value, str) else None


def _refuse(found: Found, absent: list[bool]) -> None:
    """Raise Wrong at the first row that holds no time."""
    if any(absent):
        column, row, at = place_of(found, np.array(absent).reshape(found.values.shape))
        value = found.values[at]
        missing = value is None or value != value  # NaN is the one value that differs from itself
        formats = [format_of(each) for each in found.values.ravel() if isinstance(each, str)]
        form = isinstance(value, str) and format_of(value) and max(formats)  # `%m` first where one tells so
        wrong = NotATime(column, row, shown(value), form if form and _is_day(value, form) else "")
        raise Wrong(NotFinite(column, row, "missing") if missing else wrong)


def _is_day(text: str, form: str) -> bool:
    with suppress(ValueError):
        return bool(datetime.strptime(text.strip(), form))
    return False


def as_data(
    inputs: Mapping[str, Input],
    calendar: Calendar | None,
    numbers: Mapping[str, np.ndarray],
    levels: Mapping[str, Sequence],
) -> dict[str, np.ndarray]:
    """Columns of numbers as data hold them: inputs that are times as dates, and those of labels in words."""
    found = {**numbers, **words_of(inputs, numbers, levels)}
    if calendar is not None:
        times = [each for each in inputs.values() if each.unit and each.name in numbers]
        found |= {each.name: calendar.dates(each.name, calendar.moments(found[each.name], each.unit)) for each in times}
    return found


def words_of(
    inputs: Mapping[str, Input], numbers: Mapping[str, np.ndarray], levels: Mapping[str, Sequence]
) -> dict[str, np.ndarray]:
    """The inputs of labels in the words that their numbers, from 1, stand for."""
    indices = {name: str(each.label.name) for name, each in inputs.items() if each.label is not None}
    return {
        name: np.array(levels[index])[numbers[name].astype(int) - 1]
        for name, index in indices.items()
        if name in numbers and index in levels
    }


def texts_of(dates: np.ndarray) -> list[str]:
    """A column of dates [rows] as a table shows it, in ISO's form; without hours where all begin at midnight."""
    if dates.dtype == object:
        return [each.isoformat() for each in dates.tolist()]
    days = bool(np.all(dates == dates.astype("M8[D]")))
    return [(each.date() if days else each).isoformat() for each in dates.tolist()]


def ordered(values: np.ndarray, what: str) -> np.ndarray:
    """Values [rows] whose order is that of time: of texts the times, or numbers, that these spell.

    Raises GpdslError for other words, which are in the order of the alphabet.
    """
    if not any(isinstance(each, str) for each in values.tolist()):
        return values
    found = [moment_in(str(each)) for each in values]
    if None not in found:
        return np.array(found, object)
    try:
        return values.astype(float)
    except ValueError:
        row = found.index(None)
        raise GpdslError(
            f"{what} has {shown(values[row])} in row {row + 1}, which is no time and no number: "
            "the order of words is not that of time. Write dates as 2024-01-05, or number the words in their order"
        ) from None
