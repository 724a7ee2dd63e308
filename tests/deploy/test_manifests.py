"""deploy/kustomize and the chart: Kubernetes accepts them, and their pods may do little."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpufence import cli
from gpufence.node import config

from .conftest import (
    BASES,
    CHART,
    DEPLOY,
    KUSTOMIZE,
    MONITORING,
    base,
    chart,
    documents,
    module,
    ran,
    tool,
)

VERSIONS = ("1.31", "1.34", "1.36", "1.37")
# From which version on there is such a thing, of those that 1.31 does not have.
SINCE = {
    "DeviceClass": (1, 34),
    "MutatingAdmissionPolicy": (1, 36),
    "MutatingAdmissionPolicyBinding": (1, 36),
}
# The interface of each base that runs an agent.
INTERFACES = {"agent": "device-plugin", "dra": "dra", "enforcer": "enforcer"}
OPERATORS = "monitoring.coreos.com/v1"
EVERYTHING = (
    "metrics.serviceMonitor.enabled=true",
    "metrics.rules.enabled=true",
    "metrics.dashboard.enabled=true",
)


def accepted(manifest: dict[str, Any], version: str) -> bool:
    """Whether this version of Kubernetes knows the kind; what is wrong in it is raised."""
    checker = module("kubernetes_validate")
    if manifest["apiVersion"] == OPERATORS:
        return False  # there are no schemas; test_the_monitor_selects… looks at it
    if tuple(map(int, version.split("."))) < SINCE.get(manifest["kind"], (0, 0)):
        return False
    checker.validate(manifest, version, strict=True)
    return True


def pods(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in manifests:
        if each["kind"] == "DaemonSet":
            yield each["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", BASES)
def test_kubernetes_accepts_the_bases(name: str, version: str) -> None:
    manifests = base(name)

    known = [each["kind"] for each in manifests if accepted(each, version)]

    assert known or name.startswith("admission-")
    if version == VERSIONS[-1]:
        operators = [each for each in manifests if each["apiVersion"] == OPERATORS]
        assert len(known) == len(manifests) - len(operators)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("interface", ["device-plugin", "dra", "enforcer"])
def test_kubernetes_accepts_what_the_chart_makes(interface: str, version: str) -> None:
    made = chart(f'interface="{interface}"', *EVERYTHING, "admission.enabled=true")

    known = [each for each in made if accepted(each, version)]

    assert {"DaemonSet", "ConfigMap", "Service"} <= {each["kind"] for each in known}


def test_a_wrong_key_would_be_noticed() -> None:
    (manifest,) = base("node")
    manifest["spec"]["template"]["spec"]["toleration"] = []

    with pytest.raises(module("kubernetes_validate").ValidationError):
        accepted(manifest, VERSIONS[0])


@pytest.mark.parametrize("name", BASES)
def test_kubectl_builds_the_bases(name: str) -> None:
    built = documents(ran(tool("kubectl"), "kustomize", KUSTOMIZE / name))

    kinds = sorted(each["kind"] for each in base(name))
    generated = ["ConfigMap"] if name in INTERFACES else []
    assert sorted(each["kind"] for each in built) == sorted(kinds + generated)


def test_an_agent_that_follows_pods_may_read_them_and_knows_its_node(tmp_path: Path) -> None:
    overlay = {"resources": ["k/agent"], "components": ["k/pods"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    shutil.copytree(KUSTOMIZE, tmp_path / "k")
    built = documents(ran(tool("kubectl"), "kustomize", tmp_path))

    follows(built)
    assert [each["kind"] for each in base("pods") if not accepted(each, VERSIONS[-1])] == []


@pytest.mark.parametrize("key", ["annotations", "qos_besteffort"])
def test_the_chart_gives_these_rights_where_they_are_needed(key: str) -> None:
    value = {"annotations": '["memory"]', "qos_besteffort": '["priority=low"]'}[key]

    follows(chart(f"config.{key}={value}", "metrics.enabled=false", namespace="gpus"))
    made = chart('interface="dra"', f"config.{key}={value}", "metrics.enabled=false")
    roles = [each["metadata"]["name"] for each in made if each["kind"] == "ClusterRole"]
    assert sorted(roles) == ["gpufence-dra", "gpufence-pods"]
    assert not [each for each in chart("config.annotations=[]") if each["kind"] == "ClusterRole"]


def follows(built: list[dict[str, Any]]) -> None:
    """The agent has an account that may read pods, and its node's name."""
    (pod,) = pods(built)
    (container,) = pod["containers"]
    (role,) = [each for each in built if each["kind"] == "ClusterRole"]
    (bound,) = [each for each in built if each["kind"] == "ClusterRoleBinding"]
    accounts = {
        (each["metadata"]["name"], each["metadata"]["namespace"])
        for each in built
        if each["kind"] == "ServiceAccount"
    }

    assert pod["automountServiceAccountToken"] is True
    assert (pod["serviceAccountName"], accounts.pop()[0]) == ("gpufence-agent",) * 2
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    assert "gpufence-agent" in {each["name"] for each in bound["subjects"]}
    node = [each for each in container["env"] if each["name"] == "NODE_NAME"]
    assert [each["valueFrom"]["fieldRef"]["fieldPath"] for each in node] == ["spec.nodeName"]


def test_an_agent_with_alnairs_socket_sees_whose_a_process_is(tmp_path: Path) -> None:
    overlay = {"resources": ["k/agent"], "components": ["k/alnair"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    shutil.copytree(KUSTOMIZE, tmp_path / "k")
    (built,) = pods(documents(ran(tool("kubectl"), "kustomize", tmp_path)))
    made = chart("alnair.enabled=true", 'config.preset="alnair"', "metrics.enabled=false")
    (pod,) = pods(made)

    for each in (built, pod):
        (agent,) = each["containers"]
        assert each["hostPID"] is True
        allowed = agent["securityContext"]
        assert allowed["capabilities"]["drop"] == ["ALL"]
        assert set(allowed["capabilities"]["add"]) == {"DAC_OVERRIDE", "FOWNER", "SYS_PTRACE"}
        assert allowed["allowPrivilegeEscalation"] is False
        # The kubelet mounts them into containers by these paths of the host.
        paths = {v["name"]: v["hostPath"]["path"] for v in each["volumes"] if "hostPath" in v}
        mounted = {m["mountPath"]: paths.get(m["name"]) for m in agent["volumeMounts"]}
        assert mounted["/run/alnair"] == "/run/alnair"
        assert mounted["/var/lib/alnair/workspace"] == "/var/lib/alnair/workspace"
        assert mounted["/var/lib/kubelet/device-plugins"] == "/var/lib/kubelet/device-plugins"
    assert [each["kind"] for each in made if not accepted(each, VERSIONS[-1])] == []


def test_the_charts_value_for_alnair_turns_its_socket_on(tmp_path: Path) -> None:
    pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    made = chart("alnair.enabled=true", 'config.preset="alnair"')
    (text,) = [each["data"]["node.toml"] for each in made if "node.toml" in each.get("data", {})]
    (tmp_path / "node.toml").write_text(text)

    read = config.read(tmp_path / "node.toml")

    assert (read.alnair_dir, read.alnair_workspaces) == (
        "/run/alnair",
        "/var/lib/alnair/workspace",
    )
    assert not any("alnair" in str(each) for each in chart("metrics.enabled=false"))


def test_who_makes_events_may_do_that_alone(tmp_path: Path) -> None:
    overlay = {"resources": ["k/metrics"], "components": ["k/events"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    shutil.copytree(KUSTOMIZE, tmp_path / "k")

    tells(documents(ran(tool("kubectl"), "kustomize", tmp_path)), evicts=True)
    assert [each["kind"] for each in base("events") if not accepted(each, VERSIONS[-1])] == []


@pytest.mark.parametrize("evicts", [False, True])
def test_the_chart_gives_the_right_to_annotate_only_where_it_is_used(evicts: bool) -> None:
    value = json.dumps({"enabled": True, "askEviction": evicts})
    made = chart(f"metrics.events={value}", namespace="gpus")
    kept = [each for each in made if each["metadata"]["name"] in ("gpufence-agent",)]

    tells([each for each in made if each not in kept], evicts=evicts)
    (check,) = [c for pod in pods(made) for c in pod["containers"] if c["name"] == "check"]
    assert ("--ask-eviction" in check["command"]) is evicts


def tells(built: list[dict[str, Any]], *, evicts: bool) -> None:
    """The metrics' check watches, with an account that may make Events."""
    (pod,) = pods(built)
    (check,) = [each for each in pod["containers"] if each["name"] == "check"]
    (role,) = [each for each in built if each["kind"] == "ClusterRole"]
    (account,) = [each["metadata"]["name"] for each in built if each["kind"] == "ServiceAccount"]

    assert {"--watch", "--events"} <= set(check["command"])
    assert pod["automountServiceAccountToken"] is True
    assert pod["serviceAccountName"] == account == "gpufence-metrics"
    allowed = {(rule["resources"][0], *rule["verbs"]) for rule in role["rules"]}
    assert allowed == {("events", "create"), *([("pods", "patch")] if evicts else [])}
    assert "NODE_NAME" in {each["name"] for each in check["env"]}


@pytest.mark.parametrize("name", INTERFACES)
def test_the_agent_reads_what_the_base_configures(name: str) -> None:
    pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")

    made = config.read(KUSTOMIZE / name / "node.toml")

    assert made.interface == INTERFACES[name]


@pytest.mark.parametrize("name", [*INTERFACES, "node", "metrics"])
def test_a_pod_may_do_no_more_than_its_work_needs(name: str) -> None:
    added = {"agent": {"DAC_OVERRIDE", "FOWNER"}, "export": {"DAC_READ_SEARCH", "SYS_PTRACE"}}
    added["check"] = added["export"]
    (pod,) = pods(base(name))

    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.get("hostPID", False) is (name == "metrics")
    assert "hostNetwork" not in pod
    assert "hostIPC" not in pod
    assert name in ("dra", "enforcer") or pod["automountServiceAccountToken"] is False
    for each in [*pod.get("initContainers", []), *pod["containers"]]:
        allowed = each["securityContext"]
        assert allowed["allowPrivilegeEscalation"] is False
        assert allowed["readOnlyRootFilesystem"] is True
        assert allowed["capabilities"]["drop"] == ["ALL"]
        assert set(allowed["capabilities"].get("add", [])) == added.get(each["name"], set())


def test_what_serves_metrics_writes_nowhere() -> None:
    (pod,) = pods(base("metrics"))

    mounts = [mount for each in pod["containers"] for mount in each["volumeMounts"]]
    assert mounts
    assert all(mount["readOnly"] for mount in mounts)


def test_what_serves_metrics_is_started_with_options_that_it_has() -> None:
    (pod,) = pods(base("metrics"))

    for each in pod["containers"]:
        program, *words = each["command"]
        _, parser = cli.commands()[words[0]]
        chosen = parser.parse_args(words[1:])
        assert program == "gpufence"
        (port,) = each["ports"]
        assert chosen.listen == f":{port['containerPort']}"


def test_the_monitor_selects_the_service_and_the_service_the_pods() -> None:
    (sets, service, monitor) = base("metrics")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    served = {
        port["name"]: port["containerPort"]
        for each in sets["spec"]["template"]["spec"]["containers"]
        for port in each["ports"]
    }

    labels = monitor["spec"]["selector"]["matchLabels"].items()
    assert labels <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"] == sets["spec"]["template"]["metadata"]["labels"]
    assert ports == served
    assert {each["port"] for each in monitor["spec"]["endpoints"]} == set(ports)
    assert all(each["honorLabels"] for each in monitor["spec"]["endpoints"])


@pytest.mark.parametrize(("folder", "interface"), INTERFACES.items())
def test_the_chart_is_the_base_with_values(folder: str, interface: str) -> None:
    made = {
        each["kind"]: each for each in chart(f'interface="{interface}"', "metrics.enabled=false")
    }
    (there,) = pods(base(folder))
    (pod,) = pods(list(made.values()))

    assert made["DaemonSet"]["metadata"]["name"] == made["ConfigMap"]["metadata"]["name"]
    assert made["DaemonSet"]["metadata"]["name"] == f"gpufence-{folder}"
    for each in [*there["initContainers"], *there["containers"]]:
        each["imagePullPolicy"] = "IfNotPresent"  # the chart's own default
    assert pod == there


def test_the_drivers_rights_are_for_the_account_of_the_charts_namespace() -> None:
    made = {each["kind"]: each for each in chart('interface="dra"', namespace="gpus")}

    (subject,) = made["ClusterRoleBinding"]["subjects"]
    account = made["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert account["namespace"] == "gpus"


def test_values_reach_the_pods() -> None:
    made = chart(
        'image={"repository": "r.example/gpufence", "tag": "2"}',
        'tolerations=[{"key": "k", "operator": "Exists"}]',
        'priorityClassName="mine"',
        'nodeSelector={"gpu": "yes", "nvidia.com/gpu.present": null}',
        'podAnnotations={"a": "b"}',
        'imagePullSecrets=[{"name": "s"}]',
        'metrics.allow=["nvidia-cuda-mps"]',
        "privileged=true",
        namespace="gpus",
    )

    sets = [each for each in made if each["kind"] == "DaemonSet"]
    assert len(sets) == 2
    for each in sets:
        template = each["spec"]["template"]
        pod = template["spec"]
        images = {c["image"] for c in [*pod.get("initContainers", []), *pod["containers"]]}
        assert images == {"r.example/gpufence:2"}
        assert pod["tolerations"] == [{"key": "k", "operator": "Exists"}]
        assert pod["priorityClassName"] == "mine"
        assert pod["nodeSelector"] == {"gpu": "yes"}
        assert pod["imagePullSecrets"] == [{"name": "s"}]
        assert template["metadata"]["annotations"]["a"] == "b"
    assert {each["metadata"]["namespace"] for each in made} == {"gpus"}
    (agent,) = [each for each in sets if each["metadata"]["name"] == "gpufence-agent"]
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {"privileged": True}
    words = [c["command"] for each in sets for c in each["spec"]["template"]["spec"]["containers"]]
    assert sum("--allow=nvidia-cuda-mps" in each for each in words) == 1


def test_values_reach_what_the_operators_and_grafana_find() -> None:
    made = chart(
        *EVERYTHING,
        'metrics.serviceMonitor.labels={"release": "a"}',
        'metrics.rules.labels={"release": "b"}',
        'metrics.dashboard.labels={"found_by": "c"}',
        'metrics.resources={"requests": {"memory": "1Mi"}, "limits": null}',
        'resources={"requests": {"memory": "2Mi"}, "limits": null}',
        'maxUnavailable="10%"',
        'image.pullPolicy="Always"',
        namespace="gpus",
    )
    yaml = module("yaml")
    text = {path.name: path.read_text(encoding="utf-8") for path in MONITORING.iterdir()}
    (monitor,) = [each for each in made if each["kind"] == "ServiceMonitor"]
    (rules,) = [each for each in made if each["kind"] == "PrometheusRule"]
    (board,) = [each for each in made if each["metadata"]["name"] == "gpufence-dashboard"]
    sets = [each["spec"] for each in made if each["kind"] == "DaemonSet"]
    memory = {
        each["name"]: each["resources"]["requests"]["memory"]
        for pod in pods(made)
        for each in pod["containers"]
    }

    assert monitor["metadata"]["labels"]["release"] == "a"
    assert rules["metadata"]["labels"]["release"] == "b"
    assert rules["spec"] == yaml.safe_load(text["rules.yaml"])
    assert board["metadata"]["labels"] == {"grafana_dashboard": "1", "found_by": "c"}
    assert json.loads(board["data"]["gpufence.json"]) == json.loads(text["dashboard.json"])
    assert {each["metadata"]["namespace"] for each in (monitor, rules, board)} == {"gpus"}
    assert memory == {"agent": "2Mi", "export": "1Mi", "check": "1Mi"}
    assert {each["updateStrategy"]["rollingUpdate"]["maxUnavailable"] for each in sets} == {"10%"}
    containers = [each for pod in pods(made) for each in pod["containers"]]
    assert {each["imagePullPolicy"] for each in containers} == {"Always"}


def test_the_agent_reads_the_configuration_that_the_chart_writes(tmp_path: Path) -> None:
    pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    made = chart(
        'config={"preset": "hami", "slots": 4, "default_memory": "2GiB", "settle_seconds": 1.5,'
        ' "annotations": ["memory"], "qos_burstable": ["weight=2"]}'
    )
    (text,) = [each["data"]["node.toml"] for each in made if "node.toml" in each.get("data", {})]
    (tmp_path / "node.toml").write_text(text)

    read = config.read(tmp_path / "node.toml")

    assert (read.gpu_resource, read.slots, read.settle_seconds) == ("nvidia.com/gpu", 4, 1.5)
    assert read.default_memory == 2 << 30
    assert (read.annotations, read.of_qos("Burstable")) == (("memory",), {"weight": "2"})


def test_another_configuration_starts_the_agents_anew() -> None:
    def mark(*settings: str) -> str:
        (found,) = [
            each["spec"]["template"]["metadata"]["annotations"]["gpufence.io/config"]
            for each in chart(*settings, "metrics.enabled=false")
            if each["kind"] == "DaemonSet"
        ]
        return str(found)

    assert mark() == mark() != mark("config.slots=3")


@pytest.mark.parametrize(
    "setting",
    [
        "config.slot=4",
        "config.slots=0",
        'config.preset="other"',
        'interface="csi"',
        "image.tag=1",
        "maxUnavailable=0",
        'admission.defaultCores="101"',
        "surprise=1",
        'interface="dra",alnair.enabled=true',
        'interface="enforcer",alnair.enabled=true',
    ],
)
def test_helm_refuses_values_that_are_none(setting: str) -> None:
    helm = tool("helm")

    with pytest.raises(AssertionError, match="schema"):
        ran(helm, "template", "g", CHART, f"--set-json={setting}")


def test_helm_finds_nothing_to_complain_of() -> None:
    ran(tool("helm"), "lint", "--strict", CHART)


def test_a_packed_chart_has_everything_in_it(tmp_path: Path) -> None:
    helm = tool("helm")
    ran(helm, "package", CHART, "--destination", tmp_path)
    (packed,) = tmp_path.glob("gpufence-*.tgz")

    from_folder = ran(helm, "template", "g", CHART)

    assert ran(helm, "template", "g", packed) == from_folder


def properties(schema: dict[str, Any], values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every place where one of the two has a key that the other has not."""
    if "properties" not in schema:
        return
    known, given = set(schema["properties"]) - {"global"}, set(values)
    yield from (f"{path}.{key}" for key in known ^ given)
    for key in known & given:
        if isinstance(values[key], dict):
            yield from properties(schema["properties"][key], values[key], f"{path}.{key}")


def schema_and_values() -> tuple[dict[str, Any], dict[str, Any]]:
    from gpufence.cdi import yaml_text

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values: Any = yaml_text.load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return schema, values


def test_the_schema_and_the_values_have_the_same_keys() -> None:
    import jsonschema

    schema, values = schema_and_values()
    jsonschema.Draft7Validator(schema).validate(values)
    told = schema["properties"].pop("config")

    assert sorted(properties(schema, {k: v for k, v in values.items() if k != "config"})) == []
    assert set(values["config"]) <= set(told["properties"])


def test_the_schemas_configuration_is_the_agents() -> None:
    schema, _ = schema_and_values()
    known = set(config.Config.__dataclass_fields__) | {"preset"}
    # Folders are those that the manifests mount; the others differ between nodes.
    elsewhere = {each for each in known if each.endswith("_dir")}
    elsewhere |= {"folder", "pod_resources", "alnair_workspaces", "interface", "gpus"}
    elsewhere |= {"node_name", "api_server", "hypervisor_listen"}

    told = schema["properties"]["config"]["properties"]

    assert set(told) == known - elsewhere
    names = list(config.pod_limits.NAMES)
    assert told["annotations"]["items"]["enum"] == names
    assert told["qos_besteffort"]["items"]["pattern"] == f"^({'|'.join(names)})="
    assert set(told["preset"]["enum"]) == set(config.PRESETS)


def test_the_charts_presets_are_the_agents() -> None:
    from gpufence.cdi import yaml_text

    told = yaml_text.load((CHART / "presets.yaml").read_text(encoding="utf-8"))

    assert told == {
        name: {key: value for key, value in preset.items() if key.endswith("_resource")}
        for name, preset in config.PRESETS.items()
    }


def test_there_is_one_copy_of_each_manifest() -> None:
    links = {path.name: path.readlink() for path in CHART.iterdir() if path.is_symlink()}

    assert {name: (CHART / link).resolve() for name, link in links.items()} == {
        "files": DEPLOY / "kustomize",
        "monitoring": DEPLOY / "monitoring",
    }
