"""A Prometheus of its own over programs on one simulated GPU, all on 127.0.0.1.

`Node` runs the programs and the two commands that serve their metrics, `Prometheus` scrapes them by
the job of docs/export.md, with the rules of deploy/monitoring. Must not know what is tested.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpufence.node import agents

from tests.support.machine import Sim

from .conftest import MONITORING, REPO, module

PATIENCE_S = 25
EVERY_S = 1
T = TypeVar("T")
# A program that goes on, and the codes of what it was told.
Told = tuple[subprocess.Popen[str], list[int]]


def until(found: Callable[[], T | None], what: str) -> T:
    """What it finds, once it finds something."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        if (seen := found()) is not None:
            return seen
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


class Node:
    """Programs on a simulated GPU, and the commands that tell of them."""

    def __init__(self, sim: Sim, folder: Path) -> None:
        """An agent holds its folder, as it does on a healthy node."""
        self.sim = sim
        self.agent = folder / "agent"
        self.running: list[subprocess.Popen[str]] = []
        self.agent.mkdir()
        self._agent = agents.only_one(self.agent)

    def program(self, *commands: str, fenced: bool, env: Mapping[str, str] | None = None) -> Told:
        """A program that does what it is told and goes on; the codes that it got."""
        made = self.sim.spawn("view_commands", preload=fenced, env=env or {})
        self.running.append(made)
        assert made.stdin
        assert made.stdout
        assert made.stdout.readline().startswith("ready ")
        return made, [self.tell(made, command) for command in commands]

    def container(self, name: str, *commands: str, **env: str) -> Told:
        """The same in a container with a limit of 1 GiB."""
        folder = self.agent / "containers" / name / "state"
        folder.mkdir(parents=True)
        ours = {
            "GPUFENCE_STATE_DIR": str(folder),
            "GPUFENCE_CONTAINER": name,
            "GPUFENCE_MEMORY_LIMIT": "1g",
        }
        return self.program(*commands, fenced=True, env={**ours, **env})

    def tell(self, made: subprocess.Popen[str], command: str) -> int:
        """One more command; its code."""
        assert made.stdin
        assert made.stdout
        print(command, file=made.stdin, flush=True)
        return int(made.stdout.readline().split()[0])

    def served(self, *words: str) -> str:
        """Start a command that serves metrics; its address and port."""
        env = self.sim.environment(preload=False, extra={"PYTHONPATH": str(REPO / "tools")})
        folders = (f"--state-dir={self.agent}", f"--agent-dir={self.agent}")
        made = subprocess.Popen(
            [sys.executable, "-m", "gpufence", *words, "--listen=127.0.0.1:0", *folders],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(made)
        assert made.stderr
        said = made.stderr.readline()
        found = re.search(r"http://([\d.:]+)/metrics", said)
        assert found, said
        return found[1]

    def close(self) -> None:
        """End everything."""
        for each in self.running:
            each.kill()
            each.communicate()
        self._agent.close()


def documented_job(targets: list[str]) -> dict[str, Any]:
    """The job of docs/export.md, with these targets in the place of the reader's."""
    page = (REPO / "docs" / "export.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.S)
    (job,) = module("yaml").safe_load(block)["scrape_configs"]
    (group,) = job["static_configs"]
    assert len(group["targets"]) == len(targets)
    group["targets"] = targets
    return dict(job)


def impatient_rules() -> dict[str, Any]:
    """The rules, but whoever has to wait for minutes or days waits for seconds."""
    found = module("yaml").safe_load((MONITORING / "rules.yaml").read_text(encoding="utf-8"))
    for group in found["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{2 * EVERY_S}s"
    return dict(found)


class Prometheus:
    """The program, and what it answers."""

    def __init__(self, program: str, folder: Path, targets: list[str]) -> None:
        """Start it; it scrapes and looks at its rules each second."""
        folder.mkdir()
        every = f"{EVERY_S}s"
        config = {
            "global": {"scrape_interval": every, "evaluation_interval": every},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [documented_job(targets)],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        (folder / "rules.yaml").write_text(json.dumps(impatient_rules()))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            until(self._answers, f"an answer of {program}: {folder}/log")
        except AssertionError:
            self.close()
            raise

    def _answers(self) -> bool | None:
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=5):
                return True
        except OSError:
            return None

    def ask(self, place: str, **words: str) -> Any:  # noqa: ANN401 - whatever JSON it answers
        """What its HTTP API answers; AssertionError with its words where it refuses."""
        query = urllib.parse.urlencode(words)
        try:
            with urllib.request.urlopen(f"{self.address}/api/v1/{place}?{query}", timeout=10) as it:
                answer = json.load(it)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{words}: {error.read().decode()}") from None
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        return answer["data"]

    def series(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series of an expression, now."""
        found = self.ask("query", query=expression)
        assert found["resultType"] == "vector", expression
        return [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def alerts(self, state: str = "firing") -> list[Mapping[str, str]]:
        """Labels of the alerts in that state."""
        return [each["labels"] for each in self.ask("alerts")["alerts"] if each["state"] == state]

    def looks(self) -> int:
        """How often both targets were scraped, as far as it knows."""
        return min(
            (
                int(value)
                for _, value in self.series('count_over_time(up{job="gpufence-metrics"}[5m])')
            ),
            default=0,
        )

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._log.close()
