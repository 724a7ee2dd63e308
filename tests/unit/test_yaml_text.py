"""The part of YAML that CDI files are written in: read back exactly, all else refused."""

from __future__ import annotations

import contextlib
import importlib.util

import pytest
from gpufence.cdi import yaml_text
from hypothesis import given
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


@given(DOCUMENTS)
def test_what_is_written_is_read_back(document: dict[str, object]) -> None:
    assert yaml_text.load(yaml_text.dump(document)) == (document or {})


@given(DOCUMENTS)
def test_other_readers_read_the_same(document: dict[str, object]) -> None:
    if importlib.util.find_spec("yaml") is None:
        pytest.skip("no PyYAML here")
    import yaml

    assert yaml.safe_load(yaml_text.dump(document)) == document


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
        ("a: &x 1", "line 1 uses '&'"),
        ("a: *x", "line 1 uses '*'"),
        ("a: !t 1", "line 1 uses '!'"),
        ("a: |\n  b", "line 1 uses '|'"),
        ("a: >\n  b", "line 1 uses '>'"),
        ("a: 1\na: 2", "line 2 names 'a' again"),
        ("a: 1\n  b: 2", "line 2 is indented"),
        ("  a: 1\nb: 2", "line 2 is indented"),
        ("a: b: c", "second ': '"),
        ("a: 'x", "without its end"),
        ('a: "x', "no JSON"),
        ('a: "x" y', "goes on"),
        ("a: 1\n---\nb: 2", "second document"),
        ("a:\n\t b: 1", "tab"),
        ("a: 1\nb", "no 'key: value'"),
    ],
)
def test_other_yaml_is_refused_by_its_line(text: str, why: str) -> None:
    with pytest.raises(yaml_text.YamlError, match=why.replace("*", r"\*").replace("|", r"\|")):
        yaml_text.load(text)
