"""CDI files as YAML: read back exactly, and nothing read in which two readers may differ."""

from __future__ import annotations

import contextlib
import re

import pytest
import yaml
from gpufence.cdi import yaml_text
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(TEXTS, VALUES, max_size=4)

# As nvidia-ctk writes it.
VENDOR_FILE = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  - hostPath: /dev/nvidia-uvm   # the memory manager
    path: /dev/nvidia-uvm
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - ../libnvidia-allocator.so.1::/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
devices:
- containerEdits:
    deviceNodes:
    - major: 195
      path: /dev/nvidia0
  name: "0"
- name: 'it''s'
  containerEdits: {"env": ["A=b"]}
kind: nvidia.com/gpu
"""


@settings(deadline=None)  # a busy machine takes its time
@given(DOCUMENTS)
def test_what_is_written_is_read_back(document: dict[str, object]) -> None:
    assert yaml_text.load(yaml_text.dump(document)) == (document or {})


@settings(deadline=None)  # a busy machine takes its time
@given(DOCUMENTS)
def test_other_readers_read_the_same(document: dict[str, object]) -> None:
    assert yaml.safe_load(yaml_text.dump(document)) == document


@settings(deadline=None)  # a busy machine takes its time
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(yaml_text.YamlError):
        yaml_text.load(text)


def test_a_vendors_file_is_read() -> None:
    found = yaml_text.load(VENDOR_FILE)

    assert isinstance(found, dict)
    assert found["cdiVersion"] == "0.5.0"
    assert found["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidiactl"},
        {"hostPath": "/dev/nvidia-uvm", "path": "/dev/nvidia-uvm"},
    ]
    assert found["containerEdits"]["hooks"][0]["args"][2:] == [
        "--link",
        "../libnvidia-allocator.so.1::/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so",
    ]
    assert found["devices"] == [
        {"containerEdits": {"deviceNodes": [{"major": 195, "path": "/dev/nvidia0"}]}, "name": "0"},
        {"name": "it's", "containerEdits": {"env": ["A=b"]}},
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("b: 1\na: &x 1", "line 2 uses an anchor, alias or tag"),
        ("a: *x", "line 1 uses an anchor, alias or tag"),
        ("a: !t 1", "line 1 uses an anchor, alias or tag"),
        ("a: !!set {b}", "line 1 uses an anchor, alias or tag"),
        ("a: 1\nb:\n  c: 2\n  c: 3", "line 4 names 'c' again"),
        ("1: a", "line 1 has the key 1, which is no text"),
        ("? [a]\n: b", "line 1 has the key [], which is no text"),
        ("a: 1\n  b: 2", "line 2: mapping values are not allowed"),
        ("a: 'x", "line 1: found unexpected end of stream"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
        ("a:\n\t b: 1", "line 2: found character that cannot start any token"),
        ("a: \x00", "it is no YAML: "),
        ("[" * 300_000, "line 1 is nested too deep"),
    ],
)
def test_other_yaml_is_refused_by_its_line(text: str, why: str) -> None:
    with pytest.raises(yaml_text.YamlError, match=re.escape(why)):
        yaml_text.load(text)


def test_a_date_is_a_text_as_in_json() -> None:
    assert yaml_text.load("a: 2026-11-24\nb: 1\nc: true") == {"a": "2026-11-24", "b": 1, "c": True}


@pytest.mark.parametrize("text", ["no", "1e3", "0x1", "4g", "~", "a: b", "2026-11-24", "=", ""])
def test_what_another_reader_could_take_for_something_else_is_quoted(text: str) -> None:
    assert yaml_text.dump({"a": text}) == f'---\na: "{text}"\n'


def test_other_texts_are_plain_and_lists_are_indented() -> None:
    assert yaml_text.dump({"a": ["A=b", {"c": "/d", "e": 1}]}) == (
        "---\na:\n  - A=b\n  - c: /d\n    e: 1\n"
    )


def test_what_stands_there_twice_is_written_twice() -> None:
    same = ["ro"]

    assert yaml_text.load(yaml_text.dump({"a": same, "b": same})) == {"a": same, "b": same}
