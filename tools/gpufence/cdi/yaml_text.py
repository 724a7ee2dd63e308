"""CDI files as YAML, by PyYAML: what is refused beside its own rules, and how texts are written.

An engine reads such a file with another reader than we do. So nothing is read in which two readers
may differ (names that stand there twice, anchors and aliases), and nothing is written as a plain
word that another reader could take for something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpufence import packages

if TYPE_CHECKING:
    import yaml

_PLAIN = re.compile(r"[A-Za-z/][\w./=%+-]*", re.ASCII)
# Words that some readers take for truth values.
_ODD_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
# Nested deeper than this is no CDI file, and libyaml's reader in C has no bound of its own.
_DEEPEST = 50
_OPENING = ("MappingStartEvent", "SequenceStartEvent")
_CLOSING = ("MappingEndEvent", "SequenceEndEvent")

_PACKAGE = ("PyYAML", "no YAML without a reader of it")


class YamlError(ValueError):
    """Text that is not read; the message names the line."""


def dump(document: object) -> str:
    """A document of maps with text keys, lists, texts, numbers and truth values as block YAML.

    Raises:
        ToolError: exit 1, without PyYAML.
    """
    with packages.needed(*_PACKAGE):
        import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, indentless=False)

        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _ODD_WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')

    Dumper.add_representer(str, text)
    return str(
        yaml.dump(document, Dumper=Dumper, explicit_start=True, sort_keys=False, width=1 << 20)
    )


def load(text: str) -> Any:  # noqa: ANN401 - what the document holds
    """Read one document.

    Raises:
        YamlError: no YAML, or YAML that is not read here.
        ToolError: exit 1, without PyYAML.
    """
    with packages.needed(*_PACKAGE):
        import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
            names = set()
            for key, _ in node.value:
                name = self.construct_object(key)
                line = key.start_mark.line + 1
                if not isinstance(name, str):
                    raise YamlError(f"line {line} has the key {name!r}, which is no text")
                if name in names:
                    raise YamlError(f"line {line} names '{name}' again")
                names.add(name)
            found: dict[str, Any] = super().construct_mapping(node, deep)
            return found

    Loader.yaml_implicit_resolvers = {  # a date stays the text that it is in JSON
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    try:
        _look_through(yaml.parse(text, base))
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlError(f"line {line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise YamlError(f"it is no YAML: {error}".splitlines()[0]) from None


def _look_through(events: Iterable[Any]) -> None:
    """Refuse what another reader could take otherwise, or what would end the interpreter."""
    depth = 0
    for event in events:
        line, kind = event.start_mark.line + 1, type(event).__name__
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise YamlError(f"line {line} uses an anchor, alias or tag: none is read here")
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth > _DEEPEST:
            raise YamlError(f"line {line} is nested too deep")
