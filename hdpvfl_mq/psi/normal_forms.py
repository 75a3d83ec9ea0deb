"""One spelling for e-mail addresses, telephone numbers, names and dates.

It owns those rules and their edition, which is part of the digest that parties compare; it knows no
table and no peer. A value without a normal form counts as empty if the rules drop empty ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from importlib import import_module
from unicodedata import category, normalize

from hdpvfl_mq.errors import SettingsError
from schemas.config import IdRules

EDITION = 1
_DATES = (
    re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})", re.ASCII),
    re.compile(r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})", re.ASCII),
    re.compile(r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})", re.ASCII),
    re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})", re.ASCII),
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")


class UnusableError(Exception):
    """Why one value cannot be an id; the caller adds column and row."""


def normal_form(text: str, form: str, rules: IdRules) -> str:
    """The normal form of a value; "" if it has none and the rules drop it."""
    name, _, country = form.partition(":")
    try:
        return _FORMS[name](text, country)
    except UnusableError:
        if rules.empties == "drop":
            return ""
        raise


def _email(text: str, country: str) -> str:
    """Ignore case; keep dots and the part after a plus sign."""
    folded = text.casefold().removeprefix("mailto:")
    if not _EMAIL.fullmatch(folded):
        raise UnusableError("is not an e-mail address")
    return folded


def _telephone(text: str, country: str) -> str:
    """+ and the digits of the whole number, E.164."""
    try:
        phonenumbers = import_module("phonenumbers")
    except ImportError:
        raise SettingsError("ids.kind: telephone needs pip install 'hdpvfl-mq[ids]'") from None
    try:
        number = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException:
        raise UnusableError("is not a telephone number") from None
    whole = phonenumbers.ValidationResult.IS_POSSIBLE  # not a local number without its area code
    if phonenumbers.is_possible_number_with_reason(number) != whole:
        raise UnusableError("is not a telephone number")
    return str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))


def _name(text: str, country: str) -> str:
    """Letters and digits without accents and case, a space between words."""
    plain = normalize("NFKD", text.casefold().replace("'", "").replace("\u2019", ""))
    kept = (c if category(c)[0] in "LN" else " " for c in plain if category(c) != "Mn")
    words = "".join(kept).split()
    if not words:
        raise UnusableError("is not a name")
    return " ".join(words)


def _date(text: str, country: str) -> str:
    """2026-11-16; a date with slashes must begin with the year, else its month is ambiguous."""
    for pattern in _DATES:
        if found := pattern.fullmatch(text):
            try:
                return date(*(int(found[part]) for part in "ymd")).isoformat()
            except ValueError:
                break
    raise UnusableError("is not a date such as 2026-11-16, 2026/11/16, 20261116 or 16.11.2026")


_FORMS: dict[str, Callable[[str, str], str]] = {
    "email": _email,
    "telephone": _telephone,
    "name": _name,
    "date": _date,
}
