"""Amounts that stand in one text each: what a setting's text is worth, dialect by dialect.

The same as ParseAmount in lib/src/config/amounts.cpp.
"""

from __future__ import annotations

import re

from . import sizes
from .limits import Kind
from .options import Dialect, Option, Setting
from .sizes import THOUSAND, Fault, TextError

SETTINGS = frozenset(
    {
        Setting.MEMORY,
        Setting.MEMORY_MEGABYTES,
        Setting.CORES,
        Setting.SOFT_CORES,
        Setting.RATIO,
        Setting.SPILL,
        Setting.OVERSUBSCRIBE,
    }
)


def parse(text: str, option: Option) -> tuple[Kind, int, bool]:
    """Kind, amount, and whether it is a part of the device; an empty text is 0."""
    setting = option.setting
    if setting is Setting.MEMORY:
        size = sizes.parse_size(text) if text else sizes.Size(0, False)
        if text and size.amount == 0 and option.dialect is Dialect.VGPU_MANAGER:
            raise TextError(Fault.ZERO)
        return Kind.MEMORY, size.amount, size.percent_of_device
    if setting is Setting.MEMORY_MEGABYTES:
        bytes_ = sizes.parse_megabytes(text) if text else 0
        if text and bytes_ == 0 and option.dialect is Dialect.NVIDIA:
            raise TextError(Fault.ZERO)
        return Kind.MEMORY, bytes_, False
    if setting in (Setting.CORES, Setting.SOFT_CORES):
        kind = Kind.CORES if setting is Setting.CORES else Kind.SOFT_CORES
        return kind, _parse_share(text, option) if text else 0, False
    if setting is Setting.OVERSUBSCRIBE:
        return Kind.OVERSUBSCRIBE, parse_oversubscribe(text) if text else 0, False
    if setting is Setting.SPILL:
        return Kind.SPILL, int(sizes.parse_switch(text)) if text else 0, False
    return Kind.OVERSUBSCRIBE, _parse_memory_ratio(text) if text else 0, False


def _parse_share(text: str, option: Option) -> int:
    share = sizes.parse_percent(text)
    if option.dialect is Dialect.ALNAIR and share == 0:
        raise TextError(Fault.BELOW_ONE)
    return 0 if option.setting is Setting.CORES and share == 100 * THOUSAND else share


def parse_oversubscribe(text: str) -> int:
    """A switch, or a ratio of at least one in thousandths; 1: on without a ratio, 0: off."""
    if not re.match(r"[0-9 ]", text):
        return _parse_whether(text)
    try:
        ratio = sizes.parse_ratio(text)
    except TextError as error:
        if error.fault is Fault.ROUNDS_TO_ZERO:
            raise TextError(Fault.BELOW_ONE) from None
        raise
    if 0 < ratio < THOUSAND:
        raise TextError(Fault.BELOW_ONE)
    return 0 if ratio == THOUSAND else ratio


def _parse_whether(text: str) -> int:
    try:
        return int(sizes.parse_switch(text))
    except TextError:
        raise TextError(Fault.OVERSUBSCRIBE) from None


def _parse_memory_ratio(text: str) -> int:
    """vgpu-manager's: up to 1 it has no effect."""
    try:
        ratio = sizes.parse_ratio(text)
    except TextError as error:
        if error.fault is Fault.ROUNDS_TO_ZERO:
            return 0
        raise
    return ratio if ratio > THOUSAND else 0
