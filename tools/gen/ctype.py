"""C types as libclang shows them → the spellings and declarations of the model.

Owns every rule about spelling a type. It uses only what libclang 14 to 18 agree on (kinds, not
spellings of records), so that each of them gives the same bytes. Must not know which functions
exist or which files were parsed.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import quirks
from .clang_protocols import Cursor, Type
from .errors import HookgenError
from .ir import (
    AliasType,
    Constant,
    EnumType,
    Field,
    FunctionType,
    HandleType,
    Inline,
    RecordType,
    TypeDecl,
)

# libclang's TypeKind names; a scalar that is missing here is refused, never guessed.
_SCALARS = {
    "VOID": "void",
    "BOOL": "_Bool",
    "CHAR_S": "char",
    "CHAR_U": "char",
    "SCHAR": "signed char",
    "UCHAR": "unsigned char",
    "SHORT": "short",
    "USHORT": "unsigned short",
    "INT": "int",
    "UINT": "unsigned int",
    "LONG": "long",
    "ULONG": "unsigned long",
    "LONGLONG": "long long",
    "ULONGLONG": "unsigned long long",
    "FLOAT": "float",
    "DOUBLE": "double",
}
_ARRAYS = {"CONSTANTARRAY", "INCOMPLETEARRAY"}


def pointer_to(spelling: str) -> str:
    """`char` → `char *`, `char *` → `char **`, `char *const` → `char *const *`."""
    return spelling + ("*" if spelling.endswith("*") else " *")


class TypeReader:
    """Spells types and remembers each named type it met, to declare them all at the end."""

    def __init__(self, touched: Iterable[str] | None) -> None:
        """`touched`: names of the records and enums to read in full; None: all of them."""
        self._touched = None if touched is None else frozenset(touched)
        self._tag_names: dict[str, str] = {}
        self._typedefs: dict[str, Cursor] = {}
        self._wanted: dict[str, Cursor] = {}

    def note_typedef(self, cursor: Cursor) -> None:
        """Record a typedef in header order: the first one that names a tag is its name."""
        target = _unwrap(cursor.underlying_typedef_type)
        if target.kind.name in ("RECORD", "ENUM"):
            self._tag_names.setdefault(target.get_declaration().get_usr(), cursor.spelling)
        self._typedefs.setdefault(cursor.spelling, cursor)

    def want(self, name: str) -> None:
        """Ask for a type by name even if no function mentions it; unknown names are ignored."""
        if name in self._typedefs:
            self._wanted.setdefault(name, self._typedefs[name])

    def spell(self, ctype: Type) -> str:
        """The model's spelling of a type; an array decays to a pointer, as in a parameter."""
        constant = ctype.is_const_qualified()  # ELABORATED carries it, what it wraps does not
        ctype = _unwrap(ctype)
        kind = ctype.kind.name
        if kind == "POINTER":
            pointee = ctype.get_pointee()
            if _is_function(pointee):
                raise _unsupported(ctype, "a function pointer without a typedef")
            return pointer_to(self.spell(pointee)) + ("const" if constant else "")
        if kind in _ARRAYS:
            return pointer_to(self.spell(ctype.element_type))
        const = "const " if constant else ""
        if kind in _SCALARS:
            return const + _SCALARS[kind]
        return const + self._named(ctype)

    def shape(self, ctype: Type) -> tuple[str, ...]:
        """Return type and parameter types of a function type or a pointer to one."""
        ctype = _unwrap(ctype)
        if ctype.kind.name == "POINTER":
            ctype = _unwrap(ctype.get_pointee())
        arguments = () if ctype.kind.name == "FUNCTIONNOPROTO" else ctype.argument_types()
        return (self.spell(ctype.get_result()), *(self.spell_param(item) for item in arguments))

    def spell_param(self, ctype: Type) -> str:
        """As `spell`, for a parameter."""
        return quirks.without_own_const(self.spell(ctype))

    def is_versioned(self, ctype: Type) -> bool:
        """Whether a pointer leads to a record that starts with `version`, set by the caller."""
        pointee = _unwrap(ctype)
        while pointee.kind.name == "POINTER":
            pointee = _unwrap(pointee.get_pointee())
        canonical = pointee.get_canonical()
        if canonical.kind.name != "RECORD":
            return False
        first = next(iter(canonical.get_fields()), None)
        return first is not None and first.spelling == "version"

    def declarations(self) -> dict[str, TypeDecl]:
        """Declare every named type met so far and all that those mention."""
        done: dict[str, TypeDecl] = {}
        while self._wanted.keys() - done.keys():
            for name in sorted(self._wanted.keys() - done.keys()):
                done[name] = self._declare(name, self._wanted[name])
        return done

    # Implementation.

    def _is_touched(self, name: str) -> bool:
        return self._touched is None or name in self._touched

    def _named(self, ctype: Type) -> str:
        declaration = ctype.get_declaration()
        name = declaration.spelling
        if ctype.kind.name in ("RECORD", "ENUM"):
            tag = declaration.get_usr()
            if tag not in self._tag_names:
                raise _unsupported(ctype, "a struct, union or enum without a typedef")
            name = self._tag_names[tag]
            declaration = self._typedefs[name]
        elif ctype.kind.name != "TYPEDEF":
            raise _unsupported(ctype, f"kind {ctype.kind.name}")
        self._wanted.setdefault(name, declaration)
        return str(name)

    def _declare(self, name: str, cursor: Cursor) -> TypeDecl:
        target = _unwrap(cursor.underlying_typedef_type)
        if target.kind.name in ("RECORD", "ENUM"):
            declaration = target.get_declaration()
            if self._tag_names[declaration.get_usr()] != name:
                return AliasType(name, self.spell(target))
            return (
                self._enum(name, declaration)
                if target.kind.name == "ENUM"
                else self._record(name, target)
            )
        if _is_function(target):
            returns, *params = self.shape(target)
            return FunctionType(name, returns, tuple(params), pointer=False)
        if target.kind.name == "POINTER":
            pointee = _unwrap(target.get_pointee())
            if _is_function(pointee):
                returns, *params = self.shape(target)
                return FunctionType(name, returns, tuple(params))
            tag = pointee.get_declaration()
            if pointee.kind.name == "RECORD" and tag.get_definition() is None:
                return HandleType(name, tag.spelling)
        return AliasType(name, self.spell(target))

    def _enum(self, name: str, declaration: Cursor) -> EnumType:
        constants = [
            Constant(child.spelling, child.enum_value)
            for child in (declaration.get_children() if self._is_touched(name) else ())
        ]
        constants.sort(key=lambda constant: (constant.value, constant.name))
        return EnumType(name, self.spell(declaration.enum_type), tuple(constants))

    def _record(self, name: str, ctype: Type) -> RecordType:
        inline = self._inline(ctype, full=self._is_touched(name))
        return RecordType(name, inline.union, inline.size, inline.align, inline.fields, ())

    def _inline(self, ctype: Type, full: bool) -> Inline:
        union = ctype.get_declaration().kind.name == "UNION_DECL"
        fields = tuple(self._field(item) for item in (ctype.get_fields() if full else ()))
        # libclang answers a negative number for a struct that no header defines.
        return Inline(union, max(ctype.get_size(), 0), max(ctype.get_align(), 0), fields)

    def _field(self, cursor: Cursor) -> Field:
        ctype = _unwrap(cursor.type)
        size = ctype.get_size()
        dims = []
        while ctype.kind.name in _ARRAYS:
            dims.append(ctype.element_count)
            ctype = _unwrap(ctype.element_type)
        inline = quirks.is_nameless_record(ctype, self._tag_names)
        count = 1
        for dim in dims:
            count *= dim
        return Field(
            name=quirks.member_name(cursor),
            type=self._inline(ctype, full=True) if inline else self.spell(ctype),
            offset=cursor.get_field_offsetof() // 8,
            size=size,
            count=count if dims else 0,
            dims=tuple(dims) if len(dims) > 1 else (),
            bits=cursor.get_bitfield_width() if cursor.is_bitfield() else 0,
        )


def _unwrap(ctype: Type) -> Type:
    """Take off ELABORATED, which libclang 14 to 18 put in different places; drops its const."""
    while ctype.kind.name == "ELABORATED":
        ctype = ctype.get_named_type()
    return ctype


def _is_function(ctype: Type) -> bool:
    return _unwrap(ctype).kind.name in ("FUNCTIONPROTO", "FUNCTIONNOPROTO")


def _unsupported(ctype: Type, why: str) -> HookgenError:
    return HookgenError(
        f"type '{ctype.spelling}' cannot be modelled", why, "Teach tools/gen/ctype.py about it."
    )
