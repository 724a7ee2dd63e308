"""The agent's configuration: what it may hold, and one line for what it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpufence.node import config
from gpufence.node.gpus import Gpu

from .conftest import GPUS, REPO


def serve(path: Path) -> subprocess.CompletedProcess[str]:
    """The agent with this configuration, which it must refuse."""
    return subprocess.run(
        [sys.executable, "-m", "gpufence", "node", "serve", f"--config={path}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("table", "status", "said"),
    [
        ({"preset": "nosuch"}, 2, "preset 'nosuch' refused"),
        ({"preset": []}, 2, "preset [] refused"),
        ({"presett": "hami"}, 2, "key 'presett' refused"),
        ({"policy": "even"}, 2, "policy = 'even' refused"),
        ({"slots": 0}, 2, "slots = 0 refused"),
        ({"slots": True}, 2, "slots = True refused"),
        ({"slots": "ten"}, 2, "slots = 'ten' refused"),
        ({"default_cores": 101}, 2, "default_cores = 101 refused"),
        ({"gpu_resource": "gpu"}, 2, "gpu_resource = 'gpu' refused"),
        ({"gpu_resource": "a/b/../c"}, 2, "refused"),
        ({"gpu_resource": ["a/b"]}, 2, "refused"),
        ({"core_resource": "gpufence.io/gpu"}, 2, "two resources have the same name"),
        ({"gpu_resource": "", "memory_resource": ""}, 2, "names no resource for GPUs or memory"),
        ({"folder": "relative"}, 2, "folder = 'relative' refused"),
        ({"folder": 7}, 2, "folder = 7 refused"),
        ({"memory_unit": "1KiB"}, 2, "memory_unit = 1024 refused"),
        ({"memory_unit": "1GiBB"}, 4, "memory_unit '1GiBB' refused: it has an unknown unit"),
        ({"default_memory": "50%"}, 4, "default_memory '50%' refused"),
        ({"default_memory": "-1g"}, 4, "default_memory '-1g' refused: it is negative"),
        ({"settle_seconds": -1}, 2, "settle_seconds = -1 refused"),
        ({"gpus": []}, 2, "gpus refused"),
        ({"gpus": [GPUS[0], GPUS[0]]}, 2, "gpus refused"),
        ({"gpus": [{"uuid": "GPU-1", "memory": "1g"}]}, 2, "GPU 'GPU-1' refused"),
        ({"gpus": [{"uuid": GPUS[0]["uuid"]}]}, 2, "has the keys uuid and memory"),
        ({"gpus": ["GPU-1\n"]}, 2, "has the keys uuid and memory"),
        ({"annotations": "memory"}, 2, "annotations = 'memory' refused"),
        ({"annotations": ["ram"]}, 2, "the annotations are memory, cores, soft-cores"),
        ({"qos_besteffort": {"priority": "low"}}, 2, "it is a list of NAME=TEXT"),
        ({"qos_besteffort": ["rank=low"]}, 2, "it is a list of NAME=TEXT"),
        ({"qos_besteffort": ["priority=lowest"]}, 4, "gpufence.io/priority 'lowest' refused"),
        ({"interface": "enforcer", "annotations": ["memory"]}, 2, "annotations and qos_… refused"),
        ({"interface": "enforcer", "alnair_dir": "/run/alnair"}, 2, "alnair_dir refused"),
        ({"interface": "dra", "hypervisor_listen": ":8000"}, 2, "hypervisor_listen refused"),
        ({"hypervisor_listen": "host:8000"}, 2, "it is no ADDRESS:PORT"),
        ({"hypervisor_listen": "1.2.3.4"}, 2, "hypervisor_listen = '1.2.3.4' refused"),
        ({"hypervisor_listen": 8000}, 2, "hypervisor_listen = 8000 refused"),
        ({"hypervisor_listen": "127.0.0.1:8000", "gpus": GPUS}, 2, "no API server"),
        ({"enforced_driver": "GPU"}, 2, "enforced_driver = 'GPU' refused"),
        ({"core_capacity": "a b"}, 2, "core_capacity = 'a b' refused"),
        ({"memory_capacity": "/x"}, 2, "memory_capacity = '/x' refused"),
        ({"annotations": ["memory"], "gpus": GPUS}, 2, "no API server: this is no pod"),
        ([], 2, "it is no table of keys"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    tmp_path: Path, table: object, status: int, said: str
) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(table))

    done = serve(path)

    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"a = 1\na = 2"])
@pytest.mark.parametrize("name", ["node.json", "node.toml"])
def test_a_file_that_cannot_be_read_is_told_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if name == "node.toml" and (not content or sys.version_info < (3, 11)):
        pytest.skip("an empty file is TOML, and reading it needs Python 3.11")

    done = serve(path)

    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1
    assert "configuration" in done.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reading TOML needs Python 3.11")
def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(
        'preset = "alnair"\nslots = 3\ndefault_memory = "2GiB"\n'
        f'gpus = [{{uuid = "{GPUS[0]["uuid"]}", memory = "4GiB"}}]\n'
    )
    table = {
        "preset": "alnair",
        "slots": 3,
        "default_memory": 2 << 30,
        "gpus": [{"uuid": GPUS[0]["uuid"], "memory": "4g"}],
    }
    (tmp_path / "node.json").write_text(json.dumps(table))

    made = config.read(tmp_path / "node.toml")

    assert made == config.read(tmp_path / "node.json")
    assert (made.gpu_resource, made.memory_unit) == ("", 1 << 30)
    assert made.gpus == (Gpu(GPUS[0]["uuid"], 4 << 30),)


def test_every_key_and_preset_stands_in_the_page() -> None:
    page = (REPO / "docs" / "node-agent.md").read_text(encoding="utf-8")
    names = [*config.PRESETS, *config.Config.__dataclass_fields__, "preset"]

    assert [name for name in names if f"`{name}`" not in page] == []
    told = [name for each in config.PRESETS.values() for name in each.values() if "/" in name]
    assert [name for name in told if f"`{name}`" not in page] == []
