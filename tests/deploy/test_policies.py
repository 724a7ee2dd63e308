"""The admission policies in the API server's own plugin, which ci/policies builds.

It compiles them, types included, and chooses namespaces and parameters; the tests in
test_admission.py do without. GPUFENCE_POLICIES names the program.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from gpufence.node.gpus import Gpu
from gpufence.node.slices import quantity, slice_of

from .conftest import BASES, COMPONENTS, KUSTOMIZE, base, documents
from .test_admission import (
    CASES,
    CORE,
    GPU,
    LIMITS_REQUEST,
    MEM,
    NIC,
    OTHER_CLAIMS,
    PARAMS,
    PARTS,
    a_claim,
    a_pod,
    limits,
)

IN, OUT = "fenced", "other"
CLAIM = {"name": "gpufence", "resourceClaimTemplateName": "small"}


def answered(objects: list[dict[str, Any]], *sent: dict[str, Any]) -> dict[str, Any]:
    """The objects as a server writes them, and an answer for each that it is sent."""
    program = os.environ.get("GPUFENCE_POLICIES")
    if not program:
        pytest.skip("GPUFENCE_POLICIES is not set (ci/policies)")
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in ((IN, {"gpufence.io/admission": "enabled"}), (OUT, {}))
    ]
    asked = {"objects": [*objects, *namespaces], "sent": sent}
    done = subprocess.run(
        [program], input=json.dumps(asked), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def admitted(objects: list[dict[str, Any]], *sent: dict[str, Any]) -> list[dict[str, Any]]:
    """Each object as it is admitted, or why it is refused."""
    answers: list[dict[str, Any]] = answered(objects, *sent)["answers"]
    return answers


def whole(
    thing: dict[str, Any], namespace: str = IN, version: str = "v1", kind: str = "Pod"
) -> dict[str, Any]:
    """A pod, or another kind of object, as it is sent."""
    metadata = {**thing["metadata"], "namespace": namespace}
    return {"apiVersion": version, "kind": kind, **thing, "metadata": metadata}


def claim(thing: dict[str, Any], namespace: str = IN) -> dict[str, Any]:
    return whole(thing, namespace, "resource.k8s.io/v1", "ResourceClaim")


def policies(**params: str) -> list[dict[str, Any]]:
    """All three policies, the one for resources with these parameters."""
    found, policy, binding = base("admission")
    others = [*base("admission-dra"), *base("admission-enforcer")]
    return [{**found, "data": PARAMS | params}, policy, binding, *others]


def said(answer: dict[str, Any]) -> list[dict[str, int] | None]:
    """The limits of each container; a server writes 3000 as 3k."""
    assert "refused" not in answer, answer["refused"]
    return [counted(each) for each in limits(answer["object"])]


def counted(amounts: dict[str, str] | None) -> dict[str, int] | None:
    return amounts and {name: quantity(text) for name, text in amounts.items()}


def test_each_pod_gets_what_it_shall_and_no_more_when_asked_again() -> None:
    first = admitted(policies(), *(whole(pod) for pod, _ in CASES))
    again = admitted(policies(), *(whole(each["object"]) for each in first))

    assert [said(each) for each in first] == [list(map(counted, each)) for _, each in CASES]
    assert [each["object"] for each in again] == [each["object"] for each in first]


def test_parameters_are_those_of_the_cluster() -> None:
    (pod,) = admitted(policies(defaultMemory="1000", cores=""), whole(a_pod({GPU: "1"}, None)))

    assert said(pod) == [{GPU: 1, MEM: 1000}, None]


@pytest.mark.parametrize("resources", [None, {}, {"limits": {"cpu": "1"}}])
def test_a_claim_is_added_beside_others_once(resources: dict[str, Any] | None) -> None:
    pod = a_pod(None, None)
    pod["metadata"]["annotations"] = {"gpufence.io/claim-template": "small"}
    del pod["spec"]["containers"][0]["resources"]
    if resources is not None:
        pod["spec"]["containers"][0]["resources"] = resources
    more = whole(json.loads(json.dumps(pod)))
    more["spec"]["resourceClaims"] = [{"name": "other", "resourceClaimName": "there"}]

    for each in admitted(policies(), whole(pod), more):
        assert "refused" not in each, each["refused"]
        made = each["object"]["spec"]
        assert made["resourceClaims"][-1] == CLAIM
        assert made["containers"][0]["resources"] == {
            **(resources or {}),
            "claims": [{"name": "gpufence"}],
        }
        (twice,) = admitted(policies(), whole(each["object"]))
        assert twice["object"]["spec"] == made


def test_pods_of_other_namespaces_stay_as_they_are() -> None:
    asking = a_pod({CORE: "5"}, memory="4", **{"claim-template": "small"})

    inside, outside = admitted(policies(), whole(asking), whole(asking, OUT))

    assert said(inside) == [{CORE: 5, GPU: 1, MEM: 4}]
    assert said(outside) == [{CORE: 5}]
    assert "resourceClaims" not in outside["object"]["spec"]


def test_without_its_parameters_a_labelled_namespace_takes_no_pod() -> None:
    _, *rest = policies()

    inside, outside = admitted(rest, whole(a_pod(None)), whole(a_pod(None), OUT))

    assert "no params found" in inside["refused"]
    assert said(outside) == [None]


def test_an_expression_of_mixed_types_refuses_a_pod_that_asks() -> None:
    text = json.dumps(policies()).replace("string(params.data.gpu)", "params.data.gpu")

    (answer,) = admitted(json.loads(text), whole(a_pod({GPU: "1"})))

    assert "expected type 'dyn' but found 'string'" in answer["refused"]


def requests(answer: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What an admitted claim asks for."""
    assert "refused" not in answer, answer["refused"]
    found: list[dict[str, Any]] | None = answer["object"]["spec"]["devices"]["requests"]
    return found


def test_a_claim_for_a_part_of_nvidias_gpus_gets_the_request_for_limits_once() -> None:
    first = admitted(policies(), *(claim(a_claim(NIC, each)) for each in PARTS))
    limits_request = {**LIMITS_REQUEST, "exactly": {**LIMITS_REQUEST["exactly"], "count": 1}}

    assert [requests(each) for each in first] == [[NIC, each, limits_request] for each in PARTS]
    again = admitted(policies(), *(claim(each["object"]) for each in first))
    assert [requests(each) for each in again] == [requests(each) for each in first]


def test_other_claims_and_those_of_other_namespaces_stay_as_they_are() -> None:
    sent = [claim(each) for each in OTHER_CLAIMS]
    sent += [claim(a_claim(each), OUT) for each in PARTS]

    made, unasked = admitted(policies(), *sent), admitted([], *sent)

    assert [requests(each) for each in made] == [requests(each) for each in unasked]


def test_a_claim_made_of_a_template_gets_the_request_and_the_template_does_not() -> None:
    spec = a_claim(*PARTS[:1])["spec"]
    template = whole(
        {"metadata": {"name": "t"}, "spec": {"spec": spec}},
        version="resource.k8s.io/v1",
        kind="ResourceClaimTemplate",
    )
    of_it = claim({"metadata": {"generateName": "p-gpu-"}, "spec": spec})

    kept, made = admitted(policies(), template, of_it)

    assert kept["object"]["spec"]["spec"] == spec
    assert [each["name"] for each in requests(made) or []] == ["gpu", "gpufence"]


@pytest.mark.parametrize("name", BASES)
def test_a_server_knows_every_field_of_the_manifests(name: str) -> None:
    ours = [each for each in base(name) if "coreos.com" not in each["apiVersion"]]

    written = answered(ours)["objects"]

    assert [each["kind"] for each in written[: len(ours)]] == [each["kind"] for each in ours]


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_server_knows_every_field_of_a_component(name: str) -> None:
    ours = documents((KUSTOMIZE / name / f"{name}.yaml").read_text(encoding="utf-8"))

    written = answered(ours)["objects"]

    assert [each["kind"] for each in written[: len(ours)]] == [each["kind"] for each in ours]


def test_a_server_writes_a_slice_as_the_agent_does() -> None:
    made = slice_of("node", [Gpu("GPU-a", 80 << 30), Gpu("GPU-b", 81559 << 20)])

    written, *_ = answered([made])["objects"]

    assert written["spec"] == made["spec"]
