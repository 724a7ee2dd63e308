"""The grammars of limits: sizes, shares, ratios, switches, UUIDs. Pure functions over text.

The library has the same in lib/src/config/{number,size,share,uuid,fault}.cpp, and one table of
vectors (tests/unit/limits.vectors.json) holds for both. A text is a string of Latin-1 characters,
one for each byte, so that no byte of a variable is lost or merged.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

LARGEST = 2**63 - 1
PERCENT_STEPS = 10**9  # a part of a device's memory is counted in billionths of a percent
THOUSAND = 1000
MOST_WEIGHT = 10_000
MOST_BURST_NS = 10 * 10**9

_NUMBER = re.compile(r"([0-9]+)(?:(\.)([0-9]*))?")
_UNIT = re.compile(r"([kmgt])i?b?", re.IGNORECASE)
_UUID = re.compile(
    r"(?:gpu-|mig-)?"
    r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})",
    re.IGNORECASE,
)
_DURATIONS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LONGEST_QUOTE = 60


class Fault(enum.Enum):
    """Why a text is no amount: what is wrong, and what to write instead."""

    BLANK = ("is blank", "Write 10g or 10GiB, or unset it for no limit")
    NEGATIVE = ("is negative", "Unset it for no limit")
    SIGNED = ("has a sign", "Write 10g or 10GiB")
    FORMULA = ("is a formula", "Write the result, such as 10GiB")
    NO_NUMBER = ("is not a number", "Write 10g or 10GiB, or unset it for no limit")
    LEADING_ZERO = ("starts with a zero", "Write it without, such as 10g")
    NO_FRACTION = ("has no digit behind the point", "Write 1.5g or 2g")
    UNIT = ("has an unknown unit", "Write 10g, 10GiB or 50%")
    FRACTION_OF_BYTE = ("is a fraction of a byte", "Write a unit, such as 1.5g")
    TOO_LARGE = ("is above 2^63 - 1", "Write less, or unset it for no limit")
    ROUNDS_TO_ZERO = ("rounds down to nothing", "Write more, or 0 for no limit")
    TOO_FINE = ("has more than nine decimals", "Write fewer")
    ABOVE_HUNDRED = ("is above 100 percent", "Write 1 to 100, or unset it for no limit")
    ZERO = ("would forbid every allocation", "Unset it for no limit")
    BELOW_ONE = ("is below 1", "Write 1 or more, such as 1.5")
    SWITCH = ("is neither on nor off", "Write 1, true, yes or on, or 0, false, no or off")
    OVERSUBSCRIBE = ("is neither off, on nor a ratio", "Write off, on or a ratio such as 1.5")
    POLICY = ("is no policy", "Write always, shared or off")
    UUID = ("is no GPU UUID", "Write GPU-<uuid> as nvidia-smi -L prints it")
    JSON = ("is no JSON object of whole numbers", 'Write {"0": 2147483648}')
    DEVICE_KEY = ("names a GPU by neither index nor UUID", 'Write {"0": 2147483648}')
    TWICE = ("names a GPU twice", "Name it once")
    MEGABYTES = ("is no whole number of MiB", "Write 1024 for 1 GiB")
    PERCENT = ("is no percentage", "Write 1 to 100, or unset it for no limit")
    RATIO = ("is no ratio", "Write a number such as 1.5, or unset it")
    PRIORITY = ("is no priority", "Write low, normal or high")
    WEIGHT = ("is no weight", "Write a whole number from 1 to 10000")
    DURATION = ("is no duration", "Write 0 to 10s, such as 250ms")
    ABOVE_TEN_SECONDS = ("is above ten seconds", "Write 0 to 10s, such as 250ms")
    FLOOR = ("is no percentage", "Write 0 to 100, such as 5")


class TextError(Exception):
    """A text that a grammar refuses; whoever knows the name turns it into a line."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value[0])
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, or a part of a device's memory in billionths of a percent; 0 means no limit."""

    amount: int
    percent_of_device: bool


@dataclass(frozen=True, slots=True)
class _Number:
    """digits / 10^decimals, exactly; `fractions` would cost every start of the command."""

    digits: int
    decimals: int
    rest: str

    def scaled(self, factor: int) -> int:
        """floor(number x factor).

        Raises:
            TextError: above 2^63 - 1, or when something became nothing.
        """
        result = self.digits * factor // self.divisor
        if result > LARGEST:
            raise TextError(Fault.TOO_LARGE)
        if result == 0 and self.digits != 0:
            raise TextError(Fault.ROUNDS_TO_ZERO)
        return result

    @property
    def divisor(self) -> int:
        """What the digits are divided by."""
        return int(10**self.decimals)


def quote(text: str) -> str:
    """A text for a message: printable ASCII, cut after 60 characters."""
    shown = "".join(c if " " <= c <= "~" else "?" for c in text[:_LONGEST_QUOTE])
    return shown + "..." if len(text) > _LONGEST_QUOTE else shown


def refusal(name: str, text: str, fault: Fault) -> tuple[str, str, str]:
    """What, why and how to fix it; in the library's one line "what why. fix"."""
    clause, fix = fault.value
    return f"{name}='{quote(text)}'", clause, fix


def describe(name: str, text: str, fault: Fault) -> str:
    """The library's line about a refused text."""
    what, why, fix = refusal(name, text, fault)
    return f"{what} {why}. {fix}"


def parse_size(text: str) -> Size:
    """Turn a memory limit into bytes or a part of the device.

    Args:
        text: NUMBER, then k/m/g/t with optional i and b, or b, byte, bytes, or %; any case, always
            1024-based, blanks around both.

    Raises:
        TextError: never returns 0 for something it did not understand.
    """
    number = _read_number(text)
    if number.rest == "%":
        steps, cut = divmod(number.digits * PERCENT_STEPS, number.divisor)
        if steps > LARGEST:
            raise TextError(Fault.TOO_LARGE)
        if cut:
            raise TextError(Fault.TOO_FINE)
        return Size(steps, True)
    unit_bytes = _unit_bytes(number.rest)
    if unit_bytes == 1 and number.decimals:
        raise TextError(Fault.FRACTION_OF_BYTE)
    return Size(number.scaled(unit_bytes), False)


def parse_percent(text: str) -> int:
    """A share of GPU time, 0 to 100 with an optional %, in thousandths of a percent, cut.

    Raises:
        TextError: what the grammar of sizes would advise is wrong here.
    """
    number = _number_or(Fault.PERCENT, text)
    if number.rest not in ("", "%"):
        raise TextError(Fault.PERCENT)
    if number.digits > 100 * number.divisor:
        raise TextError(Fault.ABOVE_HUNDRED)
    return number.scaled(THOUSAND)


def parse_ratio(text: str) -> int:
    """A decimal number without a unit, in thousandths, cut.

    Raises:
        TextError: what the grammar of sizes would advise is wrong here.
    """
    number = _number_or(Fault.RATIO, text)
    if number.rest:
        raise TextError(Fault.RATIO)
    return number.scaled(THOUSAND)


def parse_megabytes(text: str) -> int:
    """A whole number of MiB, in bytes.

    Raises:
        TextError: what the grammar of sizes would advise is wrong here.
    """
    number = _number_or(Fault.MEGABYTES, text)
    if number.rest or number.decimals:
        raise TextError(Fault.MEGABYTES)
    return number.scaled(1 << 20)


def parse_weight(text: str) -> int:
    """A whole number from 1 to 10000.

    Raises:
        TextError: for anything else.
    """
    number = _number_or(Fault.WEIGHT, text, negative=Fault.WEIGHT)
    if number.rest or number.decimals or not 0 < number.digits <= MOST_WEIGHT:
        raise TextError(Fault.WEIGHT)
    return number.digits


def parse_burst(text: str) -> int:
    """A number and us, ms or s in any case, or 0; up to ten seconds, in nanoseconds, cut.

    Raises:
        TextError: for anything else.
    """
    number = _number_or(Fault.DURATION, text, negative=Fault.DURATION)
    if not number.rest and not number.digits:
        return 0
    unit_ns = _DURATIONS.get(lower(number.rest))
    if unit_ns is None:
        raise TextError(Fault.DURATION)
    if number.digits * unit_ns > MOST_BURST_NS * number.divisor:
        raise TextError(Fault.ABOVE_TEN_SECONDS)
    burst_ns = number.digits * unit_ns // number.divisor
    if number.digits and not burst_ns:
        raise TextError(Fault.DURATION)
    return burst_ns


def parse_floor(text: str) -> int:
    """As parse_percent; what that refuses is another mistake here."""
    try:
        return parse_percent(text)
    except TextError:
        raise TextError(Fault.FLOOR) from None


def parse_switch(text: str) -> bool:
    """1, true, yes, on; 0, false, no, off; in any case."""
    word = lower(text)
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise TextError(Fault.SWITCH)


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of "GPU-...", "MIG-..." or a bare UUID."""
    match = _UUID.fullmatch(text)
    if match is None:
        raise TextError(Fault.UUID)
    return bytes.fromhex("".join(match.groups()))


def parse_index(text: str) -> int | None:
    """Digits only, below 10000, without a leading zero; None for anything else."""
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,3}", text) else None


def part_of(total_bytes: int, percent_steps: int) -> int:
    """floor(total_bytes x percent / 100), saturated at 2^64 - 1."""
    return min(total_bytes * percent_steps // (100 * PERCENT_STEPS), 2**64 - 1)


def _read_number(text: str) -> _Number:
    text = text.strip(" ")
    match = _NUMBER.match(text)
    if match is None:
        raise TextError(_why_no_number(text))
    whole, point, fraction = match.groups()
    if len(whole) > 1 and whole[0] == "0":
        raise TextError(Fault.LEADING_ZERO)
    if point and not fraction:
        raise TextError(Fault.NO_FRACTION)
    fraction = fraction or ""
    return _Number(_integer(whole + fraction), len(fraction), text[match.end() :].strip(" "))


def _number_or(fault: Fault, text: str, negative: Fault = Fault.NEGATIVE) -> _Number:
    """A number, or this fault; what is negative is called so, or as the caller says."""
    try:
        return _read_number(text)
    except TextError as error:
        raise TextError(negative if error.fault is Fault.NEGATIVE else fault) from None


def _integer(digits: str) -> int:
    """int(digits) of any length: int() itself stops at some 4300 digits."""
    value = 0
    for start in range(0, len(digits), 4000):
        part = digits[start : start + 4000]
        value = value * 10 ** len(part) + int(part)
    return value


def _why_no_number(text: str) -> Fault:
    if not text:
        return Fault.BLANK
    if re.match(r"-[0-9]", text):
        return Fault.NEGATIVE
    if re.match(r"\+[0-9]", text):
        return Fault.SIGNED
    return Fault.FORMULA if "*" in text else Fault.NO_NUMBER


def _unit_bytes(unit: str) -> int:
    if lower(unit) in ("", "b", "byte", "bytes"):
        return 1
    match = _UNIT.fullmatch(unit)
    if match is None:
        raise TextError(Fault.UNIT)
    return int(1024 ** ("kmgt".index(lower(match[1])) + 1))


def lower(text: str) -> str:
    """Lower case of ASCII letters alone: str.lower() knows letters that no byte of ours means."""
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)
