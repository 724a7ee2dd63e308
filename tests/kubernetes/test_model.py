"""The model by which ci/kubernetes judges: what it complains of, and what it does not."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from gpufence.node.book import Grant
from gpufence.node.gpus import Gpu

from . import image
from .fenced import moment_of
from .model import MIB, Asked, Model, percentile

REPO = Path(__file__).resolve().parents[2]
GPUS = (Gpu("GPU-a", 1000 * MIB), Gpu("GPU-b", 1000 * MIB))


def grant(pod: str, memory: int = 600, cores: int = 30, gpu: str = "GPU-a") -> Grant:
    return Grant(f"g-{pod}", f"default/{pod}/main", {}, (gpu,), memory * MIB, cores)


@pytest.fixture
def model() -> Model:
    """Of two pods that ask for the same."""
    return Model(GPUS, 10, {"one": Asked(600, 30), "two": Asked(600, 30)})


def complaints(model: Model) -> list[int]:
    return [len(model.wrong), len(model.lost), len(model.double)]


def test_what_is_as_it_was_asked_for_is_right(model: Model) -> None:
    for _ in range(2):
        model.look([grant("one"), grant("two", gpu="GPU-b")], {"one"})
    model.program("one", {"init": 0, "granted 0": 600 * MIB, "refused 0": 2})

    assert (complaints(model), model.looks) == ([0, 0, 0], 2)


@pytest.mark.parametrize(
    ("grants", "running", "expected"),
    [
        ([grant("one", memory=601)], {"one"}, [1, 0, 0]),
        ([grant("one", cores=0)], {"one"}, [1, 0, 0]),
        ([], {"one"}, [0, 1, 0]),
        ([grant("one"), grant("two")], {"one"}, [0, 0, 1]),
        ([grant("one"), grant("one", gpu="GPU-b")], {"one"}, [0, 1, 1]),
    ],
    ids=["other memory", "other share", "none", "more than the GPU has", "two of them"],
)
def test_what_is_wrong_lost_or_double_is_named(
    model: Model, grants: list[Grant], running: set[str], expected: list[int]
) -> None:
    model.look(grants, running)

    assert complaints(model) == expected


def test_a_container_that_changes_its_gpu_has_lost_the_first(model: Model) -> None:
    model.look([grant("one")], {"one"})
    model.look([grant("one", gpu="GPU-b")], {"one"})

    assert model.lost == {"one went from ('GPU-a',) to ('GPU-b',)"}


@pytest.mark.parametrize(
    "facts",
    [
        {"init": 0, "granted 0": 601 * MIB, "refused 0": 2},
        {"init": 0, "granted 0": 600 * MIB, "refused 0": 0},
    ],
)
def test_a_program_that_was_not_held_is_a_wrong_limit(model: Model, facts: dict[str, int]) -> None:
    model.program("one", facts)

    assert complaints(model) == [1, 0, 0]


def test_who_has_no_gpu_needs_no_grant(model: Model) -> None:
    model.program("one", {"init": 1})
    model.look([], {"one"})

    assert (complaints(model), model.without_gpu) == ([0, 0, 0], {"one"})


@pytest.mark.parametrize(
    ("text", "micros"),
    [("19Z", 0), ("19.5Z", 500000), ("19.78791Z", 787910), ("19.123456789Z", 123456)],
)
def test_a_moment_has_any_number_of_digits(text: str, micros: int) -> None:
    at = moment_of(f"2026-11-23T23:28:{text}")

    assert (at.second, at.microsecond) == (19, micros)


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (75, 3), (99, 4), (1, 1)])
def test_a_percentile_is_a_value_that_was_seen(percent: float, expected: float) -> None:
    assert percentile([4, 1, 3, 2], percent) == expected


def test_an_image_names_the_layer_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("text")
    archive = tmp_path / "image.tar"

    image.write(archive, "localhost/demo:1", tmp_path / "tree", ["/bin/sleep", "1"], {"A": "b"})

    with tarfile.open(archive) as packed:
        names = packed.getnames()
        (manifest,) = json.load(packed.extractfile("manifest.json") or sys.stdin)
        config = json.load(packed.extractfile(manifest["Config"]) or sys.stdin)
    assert names == ["config.json", "manifest.json", "layer.tar"]
    assert (manifest["RepoTags"], config["config"]["Env"]) == (["localhost/demo:1"], ["A=b"])
    assert len(config["rootfs"]["diff_ids"]) == 1


def run(*words: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.kubernetes.table", *words],
        env={"PATH": path, "PYTHONPATH": f"{REPO}:{REPO / 'tools'}"},
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    done = run(f"--tools={tmp_path}", path=str(tmp_path))

    assert (done.returncode, done.stdout) == (3, "")
    assert "skipped: etcd, kube-apiserver, " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_section_that_there_is_not_is_wrong_usage(tmp_path: Path) -> None:
    done = run("nosuch", path=str(tmp_path))

    assert done.returncode == 2
    assert "no section nosuch" in done.stderr
