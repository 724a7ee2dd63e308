"""Where the manifests are, and the programs that read them; a test without its program skips."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
DEPLOY = REPO / "deploy"
KUSTOMIZE = DEPLOY / "kustomize"
MONITORING = DEPLOY / "monitoring"
CHART = DEPLOY / "helm" / "gpufence"
# Pieces that stand beside a base in an overlay.
COMPONENTS = ("pods", "events", "alnair")
BASES = sorted(
    {path.parent.name for path in KUSTOMIZE.glob("*/kustomization.yaml")} - set(COMPONENTS)
)


def module(name: str) -> ModuleType:
    """A package of the group `deploy`, else the test is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"this Python has no {name} (ci/setup deploy)")


def tool(name: str) -> str:
    """A program, else the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"this machine has no {name}")
    return found


def ran(*words: str | Path, folder: Path = DEPLOY) -> str:
    """What a program prints, which has to succeed."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=folder, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    """Manifests of a stream of YAML, those of lists by themselves."""
    found = [each for each in module("yaml").safe_load_all(text) if each]
    return [item for each in found for item in each.get("items", [each])]


def base(name: str) -> list[dict[str, Any]]:
    """The manifests that a base of Kustomize names, as they are in its folder."""
    yaml = module("yaml")
    folder = KUSTOMIZE / name
    named = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [
        each for file in named for each in documents((folder / file).read_text(encoding="utf-8"))
    ]


def chart(*settings: str, namespace: str = "kube-system") -> list[dict[str, Any]]:
    """What helm makes of the chart with these values."""
    words = [f"--set-json={each}" for each in settings]
    helm = tool("helm")
    module("yaml")
    return documents(ran(helm, "template", "g", CHART, f"--namespace={namespace}", *words))
