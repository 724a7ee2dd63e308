"""deploy/: every example names paths, variables and devices that the tools know."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpufence import cli
from gpufence.cdi import cdi_spec, yaml_text
from gpufence.config import options
from gpufence.node import config, enforcer, slices

HERE = Path(__file__).resolve().parent
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
HOST = cdi_spec.Source(
    library="/opt/gpufence/libgpufence.so",
    preload="/opt/gpufence/ld.so.preload",
    state="/run/gpufence",
    node="/run/gpufence-node",
    addpath=None,
    limits="/etc/gpufence/limits",
)
LIMITS = {
    "small": {"GPUFENCE_MEMORY_LIMIT": "4GiB", "GPUFENCE_CORE_LIMIT": "30"},
    "large": {"GPUFENCE_MEMORY_LIMIT": "12GiB", "GPUFENCE_CORE_LIMIT": "60"},
}
# Each says in its first lines where it comes from.
COMPOSE = json.loads((HERE / "compose.schema.json").read_text(encoding="utf-8"))
KUBERNETES = json.loads((HERE / "kubernetes.schema.json").read_text(encoding="utf-8"))
KINDS = {"DaemonSet": "io.k8s.api.apps.v1.DaemonSet", "Pod": "io.k8s.api.core.v1.Pod"}
AGENT, DRA = "kustomize/agent/agent.yaml", "kustomize/dra/dra.yaml"
ENFORCER = "kustomize/enforcer/enforcer.yaml"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def read(name: str) -> Any:  # noqa: ANN401 - a YAML document
    """One of the examples."""
    return yaml_text.load((DEPLOY / name).read_text(encoding="utf-8"))


def as_compose_has_it(document: Any) -> None:  # noqa: ANN401 - a YAML document
    """Raises what the specification's schema says against a compose file."""
    jsonschema.Draft201909Validator(COMPOSE).validate(document)


def as_kubernetes_has_it(manifest: Any) -> None:  # noqa: ANN401 - a YAML document
    """Raises what Kubernetes' schema says against a manifest."""
    kind = {"$ref": f"#/$defs/{KINDS[manifest['kind']]}"}
    jsonschema.Draft7Validator(KUBERNETES | kind).validate(manifest)


def test_the_cdi_example_is_what_the_command_writes() -> None:
    document = read("cdi/gpufence.yaml")

    assert document == cdi_spec.build(cdi_spec.KIND, LIMITS, HOST)
    assert cdi_spec.check(document) == []


@pytest.mark.parametrize("name", ["compose.yaml", "compose.without-cdi.yaml"])
def test_compose_files_are_what_the_compose_specification_allows(name: str) -> None:
    as_compose_has_it(read(f"compose/{name}"))


def test_a_compose_file_with_a_wrong_key_would_be_noticed() -> None:
    document = read("compose/compose.yaml")
    document["services"]["small"]["deployed"] = document["services"]["small"].pop("deploy")

    with pytest.raises(jsonschema.ValidationError):
        as_compose_has_it(document)


@pytest.mark.parametrize("name", [AGENT, "kustomize/node/node.yaml", "k8s/pod.yaml"])
def test_manifests_are_what_kubernetes_allows(name: str) -> None:
    as_kubernetes_has_it(read(name))


def test_a_manifest_with_a_wrong_key_would_be_noticed() -> None:
    manifest = read("k8s/pod.yaml")
    manifest["spec"]["containers"][0]["volumeMounts"][0]["path"] = "/"

    with pytest.raises(jsonschema.ValidationError):
        as_kubernetes_has_it(manifest)


def test_compose_asks_for_devices_that_the_example_has() -> None:
    services = read("compose/compose.yaml")["services"]

    reserved = [each["deploy"]["resources"]["reservations"] for each in services.values()]
    (asked_of,) = {request["driver"] for each in reserved for request in each["devices"]}
    asked = [name for each in reserved for name in each["devices"][0]["device_ids"]]

    ours = [device for device in asked if not device.startswith("nvidia.com/")]
    assert (asked_of, ours) == ("cdi", [f"{cdi_spec.KIND}={name}" for name in LIMITS])


def test_compose_without_cdi_mounts_and_sets_what_the_device_does() -> None:
    service = read("compose/compose.without-cdi.yaml")["services"]["small"]
    document = cdi_spec.build(cdi_spec.KIND, LIMITS, HOST)
    edits: Any = document["containerEdits"]

    assert [volume.split(":")[:2] for volume in service["volumes"]] == [
        [mount["hostPath"], mount["containerPath"]] for mount in edits["mounts"]
    ]
    assert service["environment"] == LIMITS["small"] | {"GPUFENCE_NODE_DIR": cdi_spec.NODE_PATH}


def mounts_of_lxc(text: str) -> list[tuple[str, str, bool]]:
    """What lies where, and whether it is read-only; in the order of the file."""
    entries = re.findall(r"^lxc\.mount\.entry = (\S+) (\S+) \S+ (\S+) 0 0$", text, re.MULTILINE)
    return [(here, f"/{there}", "ro" in options.split(",")) for here, there, options in entries]


def mounts_of_nspawn(text: str) -> list[tuple[str, str, bool]]:
    """The same of a .nspawn file."""
    entries = re.findall(r"^Bind(ReadOnly)?=([^:]+):(\S+)$", text, re.MULTILINE)
    return [(here, there, bool(read_only)) for read_only, here, there in entries]


@pytest.mark.parametrize(
    ("name", "mounts_of"),
    [("lxc/gpufence.conf", mounts_of_lxc), ("nspawn/gpufence.nspawn", mounts_of_nspawn)],
)
def test_lxc_and_nspawn_mount_what_the_device_does_and_the_limit(
    name: str, mounts_of: Callable[[str], list[tuple[str, str, bool]]]
) -> None:
    edits: Any = cdi_spec.build(cdi_spec.KIND, LIMITS, HOST)["containerEdits"]
    of_device = {
        (mount["hostPath"], mount["containerPath"], "ro" in mount["options"])
        for mount in edits["mounts"]
    }

    mounts = mounts_of((DEPLOY / name).read_text(encoding="utf-8"))

    given = {mount for mount in mounts if mount[0].startswith("/")}
    assert given == of_device | {("/etc/gpufence/small.conf", cdi_spec.LIMITS_PATH, True)}


def test_lxc_mounts_run_before_what_lies_in_it() -> None:
    """A systemd that boots would cover the folders with a /run of its own."""
    text = (DEPLOY / "lxc" / "gpufence.conf").read_text(encoding="utf-8")

    places = [place for _, place, _ in mounts_of_lxc(text) if place.startswith("/run")]

    assert places == ["/run", cdi_spec.STATE_PATH, cdi_spec.NODE_PATH]


def test_the_pod_mounts_what_the_preload_file_names() -> None:
    (container,) = read("k8s/pod.yaml")["spec"]["containers"]
    places = {mount["mountPath"] for mount in container["volumeMounts"]}

    assert places == {
        str(Path(cdi_spec.LIBRARY_PATH).parent),
        cdi_spec.PRELOAD_PATH,
        cdi_spec.STATE_PATH,
        cdi_spec.NODE_PATH,
    }
    assert {each["name"]: each["value"] for each in container["env"]} == LIMITS["small"] | {
        "GPUFENCE_NODE_DIR": cdi_spec.NODE_PATH
    }


def daemon_set(name: str) -> Any:  # noqa: ANN401 - a YAML document
    """The agent's, alone or in a list with what it needs."""
    document = read(name)
    return next(each for each in document.get("items", [document]) if each["kind"] == "DaemonSet")


@pytest.mark.parametrize("name", [DRA, ENFORCER])
def test_the_dra_drivers_daemon_set_is_what_kubernetes_allows(name: str) -> None:
    as_kubernetes_has_it(daemon_set(name))


@pytest.mark.parametrize(
    ("file", "name", "driver", "verbs"),
    [
        (DRA, "gpufence-dra", slices.DRIVER, ["get", "create", "update"]),
        (ENFORCER, "gpufence-enforcer", enforcer.DRIVER, ["get", "list", "create", "update"]),
    ],
)
def test_the_dra_driver_may_do_what_it_asks_for_and_no_more(
    file: str, name: str, driver: str, verbs: list[str]
) -> None:
    items = {each["kind"]: each for each in read(file)["items"]}
    (claims, published) = items["ClusterRole"]["rules"]
    account = items["ServiceAccount"]["metadata"]["name"]

    assert (claims["resources"], claims["verbs"]) == (["resourceclaims"], ["get"])
    assert (published["resources"], published["verbs"]) == (["resourceslices"], verbs)
    assert items["ClusterRoleBinding"]["subjects"][0]["name"] == account
    assert items["ClusterRoleBinding"]["roleRef"]["name"] == account == name
    assert items["DaemonSet"]["spec"]["template"]["spec"]["serviceAccountName"] == account
    (selector,) = items["DeviceClass"]["spec"]["selectors"]
    assert selector["cel"]["expression"] == f"device.driver == '{driver}'"
    assert items["DeviceClass"]["metadata"]["name"] == driver


@pytest.mark.parametrize("name", [AGENT, DRA, ENFORCER])
def test_the_agents_manifest_starts_it_with_options_that_it_has(name: str) -> None:
    (agent,) = daemon_set(name)["spec"]["template"]["spec"]["containers"]
    program, *words = agent["command"]
    _, parser = cli.commands()[words[0]]

    chosen = parser.parse_args(words[1:])

    assert (program, words[0]) == ("gpufence", "node")
    assert chosen.lib == HOST.library
    assert str(chosen.config.parent) in {mount["mountPath"] for mount in agent["volumeMounts"]}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (AGENT, ("folder", "cdi_dir", "plugin_dir", "pod_resources")),
        (DRA, ("folder", "cdi_dir", "plugins_dir", "registry_dir")),
        (ENFORCER, ("folder", "cdi_dir", "plugins_dir", "registry_dir")),
    ],
)
def test_the_agents_manifest_mounts_its_folders_under_their_own_paths(
    name: str, keys: tuple[str, ...]
) -> None:
    # What the agent tells the kubelet are paths of the host.
    spec = daemon_set(name)["spec"]["template"]["spec"]
    hosts = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"][1:]}
    (agent,) = spec["containers"]
    mounted = {
        mount["mountPath"]: hosts[mount["name"]]
        for mount in agent["volumeMounts"]
        if mount["name"] in hosts
    }
    made = config.Config()
    needed = {getattr(made, key).removesuffix("/kubelet.sock") for key in keys}

    assert mounted == {path: path for path in mounted}
    assert needed <= set(mounted)
    assert made.node_dir in hosts.values()


def test_the_preload_files_name_the_paths_in_the_container() -> None:
    assert (DEPLOY / "ld.so.preload").read_text() == f"{cdi_spec.LIBRARY_PATH}\n"
    assert (DEPLOY / "ld.so.preload.addpath").read_text() == (
        f"{cdi_spec.ADDPATH_PATH}\n{cdi_spec.LIBRARY_PATH}\n"
    )


def test_the_shared_folders_are_made_open_and_sticky() -> None:
    lines = (DEPLOY / "systemd" / "gpufence.tmpfiles.conf").read_text().splitlines()

    assert [line.split()[:3] for line in lines if not line.startswith("#")] == [
        ["d", cdi_spec.STATE_PATH, "1777"],
        ["d", cdi_spec.NODE_PATH, "1777"],
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_of_ours_exists(path: Path) -> None:
    named = set(re.findall(r"\bGPUFENCE_[A-Z_]+", path.read_text(encoding="utf-8")))

    # The export's own variables stand for its flags (tools/gpufence/commands/export.py).
    ours = {name for name in named if not name.startswith("GPUFENCE_EXPORT_")}
    assert {name for name in ours if options.find(name) is None} == set()


def test_the_export_unit_starts_a_command_that_reads_its_variables() -> None:
    unit = (DEPLOY / "systemd" / "gpufence-export.service").read_text(encoding="utf-8")
    variables = re.findall(r"^Environment=(\w+)=", unit, re.MULTILINE)

    assert "ExecStart=/opt/gpufence-tools/bin/gpufence export\n" in unit
    assert variables == ["GPUFENCE_EXPORT_LISTEN", "GPUFENCE_NODE_DIR"]


def test_the_export_unit_starts_what_the_documented_install_puts_there() -> None:
    unit = (DEPLOY / "systemd" / "gpufence-export.service").read_text(encoding="utf-8")
    page = (DEPLOY.parent / "docs" / "install.md").read_text(encoding="utf-8")
    started = re.search(r"^ExecStart=(\S+)/bin/gpufence export$", unit, re.MULTILINE)

    assert started is not None
    assert f"python3 -m venv {started[1]}\n" in page


def test_systemd_accepts_the_export_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this machine has no systemd-analyze")
    unit = (DEPLOY / "systemd" / "gpufence-export.service").read_text(encoding="utf-8")
    # Installed as the page says, but below this test's folder.
    tool = tmp_path / "bin" / "gpufence"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    installed = tmp_path / "gpufence-export.service"
    installed.write_text(unit.replace("/opt/gpufence-tools", str(tmp_path)))

    words = ["systemd-analyze", "verify", "--man=no", str(installed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    said = [line for line in done.stderr.splitlines() if "gpufence" in line]
    assert (done.returncode, said) == (0, [])
