"""The integer value of an object-like macro, from its replacement text.

Owns a very small expression language: integers, other macros, casts to a type name (ignored),
parentheses and the operators + - * | << ~. Anything else has no value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

_CAST = re.compile(r"\(\s*([A-Za-z_]\w*)[\s*]*\)\s*(?=[\w(~+-])")
_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b")
_OCTAL = re.compile(r"\b0+(?=\d)")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")


def value_of(name: str, macros: Mapping[str, str]) -> int | None:
    """The value of a macro; None when it has none, is not defined, or is no integer.

    Args:
        name: the macro.
        macros: its replacement text, and that of every other macro.
    """
    return _value(name, macros, frozenset())


def _value(name: str, macros: Mapping[str, str], busy: frozenset[str]) -> int | None:
    if name in busy or name not in macros:
        return None
    text = _OCTAL.sub("0o", _NUMBER.sub(r"\1", macros[name]))
    text = _CAST.sub(lambda match: match[0] if match[1] in macros else "", text)
    for used in sorted(set(_NAME.findall(re.sub(r"\b0[xXo]\w+", "", text)))):
        inner = _value(used, macros, busy | {name})
        if inner is None:
            return None
        text = re.sub(rf"\b{used}\b", f"({inner})", text)
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        return None


def _evaluate(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            inner = _evaluate(operand)
            if inner is None or not isinstance(op, ast.USub | ast.UAdd | ast.Invert):
                return None
            return {ast.USub: -inner, ast.UAdd: inner, ast.Invert: ~inner}[type(op)]
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _evaluate(left), _evaluate(right)
            if first is None or second is None:
                return None
            return _combine(first, op, second)
    return None


def _combine(first: int, op: ast.operator, second: int) -> int | None:
    match op:
        case ast.Add():
            return first + second
        case ast.Sub():
            return first - second
        case ast.Mult():
            return first * second
        case ast.BitOr():
            return first | second
        case ast.LShift() if 0 <= second < 64:
            return first << second
    return None
