"""The admission policy, evaluated: which pods it changes, and to what.

A CEL library of Python stands for the API server's. It knows no JSONPatch type and not
Kubernetes' own two functions, so those are given to it here; types are not checked
(test_policies.py has them checked, by the API server's own plugin).
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from .conftest import KUSTOMIZE, base, chart, documents, module

PARAMS = {
    "gpu": "nvidia.com/gpu",
    "memory": "nvidia.com/gpumem",
    "cores": "nvidia.com/gpucores",
    "defaultMemory": "",
    "defaultCores": "",
}


def evaluated(expression: str, **given: Any) -> Any:  # noqa: ANN401 - of CEL
    celpy = module("celpy")
    text = expression.replace("JSONPatch{", "{")
    for field in ("op", "value", "path"):
        text = re.sub(rf"(?<=[{{ ]){field}: ", f'"{field}": ', text)
    functions = {
        "indexOf": lambda items, item: celpy.celtypes.IntType(list(items).index(item)),
        "escapeKey": lambda _, key: celpy.celtypes.StringType(
            str(key).replace("~", "~0").replace("/", "~1")
        ),
    }
    environment = celpy.Environment()
    program = environment.program(environment.compile(text), functions=functions)
    return program.evaluate({**given, "jsonpatch": celpy.json_to_cel({})})


def plain(value: Any) -> Any:  # noqa: ANN401 - of CEL
    """A value as JSON has it, amounts as text."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else str(value)


def patches(pod: dict[str, Any], params: dict[str, str], name: str) -> list[dict[str, Any]]:
    """What the policy does to a pod."""
    module("yaml")
    celpy = module("celpy")
    (policy,) = documents((KUSTOMIZE / name / "policy.yaml").read_text(encoding="utf-8"))
    given = {"object": celpy.json_to_cel(pod), "params": celpy.json_to_cel({"data": params})}
    for each in policy["spec"].get("matchConditions", []):
        if not evaluated(each["expression"], **given):
            return []
    variables = celpy.celtypes.MapType()
    for each in policy["spec"]["variables"]:
        found = evaluated(each["expression"], **given, variables=variables)
        variables[celpy.celtypes.StringType(each["name"])] = found
    (mutation,) = policy["spec"]["mutations"]
    made = evaluated(mutation["jsonPatch"]["expression"], **given, variables=variables)
    return [plain(each) for each in made]


def applied(pod: dict[str, Any], name: str = "admission", **params: str) -> dict[str, Any]:
    """The pod as it is admitted."""
    made = copy.deepcopy(pod)
    for patch in patches(pod, PARAMS | params, name):
        assert patch["op"] == "add"
        *way, last = [
            part.replace("~1", "/").replace("~0", "~") for part in patch["path"].split("/")[1:]
        ]
        place: Any = made
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if last == "-":
            place.append(patch["value"])
        else:
            place[last] = patch["value"]
    return made


def a_pod(*limits: dict[str, str] | None, **annotations: str) -> dict[str, Any]:
    """A pod whose containers have these limits; None: no limits at all."""
    containers = [
        {"name": f"c{number}", "resources": {} if each is None else {"limits": each}}
        for number, each in enumerate(limits)
    ]
    metadata: dict[str, Any] = {"name": "p"}
    if annotations:
        metadata["annotations"] = {
            f"gpufence.io/{key}": value for key, value in annotations.items()
        }
    return {"metadata": metadata, "spec": {"containers": containers}}


def limits(pod: dict[str, Any]) -> list[dict[str, str] | None]:
    return [each["resources"].get("limits") for each in pod["spec"]["containers"]]


GPU, MEM, CORE = PARAMS["gpu"], PARAMS["memory"], PARAMS["cores"]


CASES: list[tuple[dict[str, Any], list[dict[str, str] | None]]] = [
    # Nobody asks: nothing.
    (a_pod(None), [None]),
    (a_pod({"cpu": "1"}, None), [{"cpu": "1"}, None]),
    # A part of a GPU is a part of one GPU.
    (a_pod({MEM: "3000"}), [{MEM: "3000", GPU: "1"}]),
    (a_pod({CORE: "30"}), [{CORE: "30", GPU: "1"}]),
    (a_pod({GPU: "2", MEM: "5"}), [{GPU: "2", MEM: "5"}]),
    # Annotations fill in what a container does not say.
    (a_pod({GPU: "1"}, memory="4000"), [{GPU: "1", MEM: "4000"}]),
    (a_pod({GPU: "1", MEM: "7"}, memory="4", cores="5"), [{GPU: "1", MEM: "7", CORE: "5"}]),
    # They are for who asks; where nobody does, for the first container.
    (a_pod(None, {GPU: "1"}, cores="30"), [None, {GPU: "1", CORE: "30"}]),
    (a_pod(None, None, memory="4"), [{GPU: "1", MEM: "4"}, None]),
    (
        a_pod({MEM: "1"}, {CORE: "2"}, memory="9"),
        [{MEM: "1", GPU: "1"}, {CORE: "2", GPU: "1", MEM: "9"}],
    ),
    (a_pod({"cpu": "1"}, cores="9"), [{"cpu": "1", GPU: "1", CORE: "9"}]),
]


@pytest.mark.parametrize(("pod", "expected"), CASES)
def test_what_a_pod_gets(pod: dict[str, Any], expected: list[dict[str, str] | None]) -> None:
    made = applied(pod)

    assert limits(made) == expected
    assert limits(applied(made)) == expected  # the API server may ask again


def test_defaults_are_for_who_asks_and_names_no_amount() -> None:
    asked = a_pod({GPU: "1"}, {GPU: "1", MEM: "5"}, None)

    made = applied(asked, defaultMemory="1000", defaultCores="20")

    assert limits(made) == [
        {GPU: "1", MEM: "1000", CORE: "20"},
        {GPU: "1", MEM: "5", CORE: "20"},
        None,
    ]


def test_a_kind_of_which_there_is_no_resource_is_not_added() -> None:
    made = applied(a_pod({MEM: "4"}, cores="5"), gpu="", cores="")

    assert limits(made) == [{MEM: "4"}]


def test_containers_without_any_resources_get_them() -> None:
    pod = a_pod(None, memory="4")
    del pod["spec"]["containers"][0]["resources"]

    assert limits(applied(pod)) == [{GPU: "1", MEM: "4"}]


def test_the_policy_is_bound_with_parameters_that_it_reads() -> None:
    (params, policy, binding) = base("admission")
    said = str(policy["spec"]["variables"]) + str(policy["spec"]["mutations"])

    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    reference = binding["spec"]["paramRef"]
    assert (reference["name"], reference["namespace"]) == (
        params["metadata"]["name"],
        params["metadata"]["namespace"],
    )
    assert reference["parameterNotFoundAction"] == "Deny"
    assert policy["spec"]["paramKind"] == {
        "apiVersion": params["apiVersion"],
        "kind": params["kind"],
    }
    assert set(re.findall(r"params\.data\.(\w+)", said)) == set(params["data"]) == set(PARAMS)


@pytest.mark.parametrize("name", ["admission", "admission-dra", "admission-enforcer"])
def test_only_namespaces_that_say_so_are_touched(name: str) -> None:
    *_, policy, binding = base(name)

    chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert chosen == {"gpufence.io/admission": "enabled"}
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_the_chart_gives_the_policy_the_presets_resources() -> None:
    made = chart(
        "admission.enabled=true",
        'admission.defaultMemory="1000"',
        'config={"preset": "hami", "core_resource": ""}',
        namespace="gpus",
    )
    (params,) = [each for each in made if each["metadata"]["name"] == "gpufence-admission"]
    (binding,) = [each for each in made if each["kind"] == "MutatingAdmissionPolicyBinding"]

    assert params["data"] == PARAMS | {"cores": "", "defaultMemory": "1000"}
    assert binding["spec"]["paramRef"]["namespace"] == params["metadata"]["namespace"] == "gpus"


CLAIM = {"name": "gpufence", "resourceClaimTemplateName": "small"}


@pytest.mark.parametrize("resources", [None, {}, {"limits": {"cpu": "1"}}])
def test_a_pod_gets_the_claim_that_its_annotation_names(resources: dict[str, Any] | None) -> None:
    pod = a_pod(None, None)
    pod["metadata"]["annotations"] = {"gpufence.io/claim-template": "small"}
    del pod["spec"]["containers"][0]["resources"]
    if resources is not None:
        pod["spec"]["containers"][0]["resources"] = resources

    made = applied(pod, "admission-dra")

    first, second = made["spec"]["containers"]
    assert made["spec"]["resourceClaims"] == [CLAIM]
    assert first["resources"] == {**(resources or {}), "claims": [{"name": "gpufence"}]}
    assert second["resources"] == {}
    assert applied(made, "admission-dra") == made  # the API server may ask again


def test_claims_that_a_pod_has_stay() -> None:
    pod = a_pod(None)
    pod["metadata"]["annotations"] = {"gpufence.io/claim-template": "small"}
    other = {"name": "other", "resourceClaimName": "there"}
    pod["spec"]["resourceClaims"] = [other]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "other"}]}

    made = applied(pod, "admission-dra")

    assert made["spec"]["resourceClaims"] == [other, CLAIM]
    claims = made["spec"]["containers"][0]["resources"]["claims"]
    assert claims == [{"name": "other"}, {"name": "gpufence"}]


def test_a_pod_without_the_annotation_gets_no_claim() -> None:
    pods = [a_pod(None), a_pod({GPU: "1"}, memory="4")]

    assert [applied(pod, "admission-dra") for pod in pods] == pods


def test_the_chart_has_the_policy_of_its_interface() -> None:
    by_claims = chart("admission.enabled=true", 'interface="dra"')
    by_limits = chart("admission.enabled=true", 'interface="enforcer"')
    by_resources = chart("admission.enabled=true")

    def policies(made: list[dict[str, Any]]) -> list[str]:
        kinds = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
        found = [each for each in made if each["kind"] in kinds]
        assert len(found) == 2
        return [each["spec"].get("policyName", each["metadata"]["name"]) for each in found]

    assert policies(by_claims) == ["gpufence-claims"] * 2
    assert policies(by_limits) == ["gpufence-enforcer"] * 2
    assert policies(by_resources) == ["gpufence"] * 2


LIMITS_REQUEST = {
    "name": "gpufence",
    "exactly": {
        "deviceClassName": "enforcer.gpufence.io",
        "allocationMode": "ExactCount",
        "count": "1",  # as every amount here
    },
}


def a_claim(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests)}}}


def part(device_class: str = "gpu.nvidia.com", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """What asks for a part of a device."""
    return {"deviceClassName": device_class, "capacity": {"requests": {"memory": "4Gi"}}, **more}


NIC = {"name": "nic", "exactly": {"deviceClassName": "other.io"}}
PARTS: list[dict[str, Any]] = [
    {"name": "gpu", "exactly": part()},
    {"name": "gpu", "exactly": part("mig.nvidia.com")},
    {"name": "gpu", "exactly": part(adminAccess=False)},
    {
        "name": "gpu",
        "firstAvailable": [{"name": "a", **part("other.io")}, {"name": "b", **part()}],
    },
]
# Those of others, of whole GPUs, for monitoring, and one that has its request.
OTHER_CLAIMS: list[dict[str, Any]] = [
    a_claim({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}),
    a_claim(
        {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.nvidia.com"}]}
    ),
    a_claim({"name": "gpu", "exactly": part("other.io")}),
    a_claim({"name": "gpu", "exactly": part(adminAccess=True)}),
    a_claim(
        {"name": "gpu", "exactly": part()},
        {"name": "mine", "exactly": {"deviceClassName": "enforcer.gpufence.io"}},
    ),
    a_claim(),
    {"metadata": {"name": "c"}, "spec": {}},
    {"metadata": {"name": "c"}, "spec": {"devices": {}}},
    {"metadata": {"name": "c"}, "spec": {"devices": {"requests": None}}},
]


@pytest.mark.parametrize("request_", PARTS)
def test_a_claim_for_a_part_of_nvidias_gpus_gets_the_request_for_limits(
    request_: dict[str, Any],
) -> None:
    made = applied(a_claim(NIC, request_), "admission-enforcer")

    assert made["spec"]["devices"]["requests"] == [NIC, request_, LIMITS_REQUEST]
    assert applied(made, "admission-enforcer") == made  # the API server may ask again


@pytest.mark.parametrize("claim", OTHER_CLAIMS)
def test_any_other_claim_stays_as_it_is(claim: dict[str, Any]) -> None:
    assert applied(claim, "admission-enforcer") == claim


def test_the_request_for_limits_is_what_kubernetes_accepts() -> None:
    asked = {**LIMITS_REQUEST, "exactly": {**LIMITS_REQUEST["exactly"], "count": 1}}
    claim = a_claim({"name": "gpu", "exactly": part()}, asked)
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}

    module("kubernetes_validate").validate({**kind, **claim}, "1.37", strict=True)
