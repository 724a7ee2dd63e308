"""Which doors are enforced.  A kind that is missing here is memory or time that nobody counts."""

from __future__ import annotations

import pytest
from gen import ir
from gen.kind_rules import RULES
from gen.kinds import UNREVIEWED, classify

# Names whose kind a pattern over words would miss or mistake.
EASILY_MISTAKEN = {
    "cuGraphInstantiate": "alloc",  # reserves the memory of allocation nodes
    "cuMemPoolSetAttribute": "free",  # the release threshold decides what a pool keeps
    "cuLogicalEndpointCreate": "alloc",
    "cuGreenCtxCreate": "context",
    "cuCtxFromGreenCtx": "context",
    "cuCtxSetLimit": "alloc",  # the device heap
    "cuDeviceGraphMemTrim": "free",
    "cuCheckpointProcessRestore": "alloc",
    "cuMemMap": "alloc",  # keeps a released handle's memory alive
    "cuMemUnmap": "free",
    "cuDestroyExternalMemory": "free",
    "cuGraphLaunch": "launch",
    "cuGraphAddNode": "alloc",
    "cuLaunchHostFunc": "stream",  # no GPU work
    "cuGraphicsResourceGetMappedPointer": "plain",  # cuGraphics is not cuGraph
    "nvmlDeviceGetAttributes": "query",  # holds the memory of a MIG device
    "nvmlDeviceGetMPSComputeRunningProcesses": "query",
    "nvmlInternalGetExportTable": "lookup",
}
HOST_MEMORY = ("cuMemAllocHost", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister")
# The accounting table of the memory families: what charges, what gives back.
CHARGES = """
    cuMemAlloc cuMemAllocPitch cuMemAllocManaged cuMemAllocAsync cuMemAllocFromPoolAsync cuMemCreate
    cuArrayCreate cuArray3DCreate cuMipmappedArrayCreate cuGraphAddMemAllocNode cuGraphClone
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuLibraryLoadData
    cuLibraryLoadFromFile cuMemImportFromShareableHandle cuIpcOpenMemHandle cuImportExternalMemory
    cuMulticastCreate cuMulticastBindMem cuMulticastBindAddr
"""
RELEASES = """
    cuMemFree cuMemFreeAsync cuMemRelease cuMemUnmap cuArrayDestroy cuMipmappedArrayDestroy
    cuMemPoolTrimTo cuMemPoolDestroy cuGraphAddMemFreeNode cuGraphExecDestroy cuGraphDestroy
    cuGraphDestroyNode cuModuleUnload cuLibraryUnload cuIpcCloseMemHandle cuMulticastUnbind
"""
LAUNCHES = """
    cuLaunch cuLaunchGrid cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx
    cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuGraphLaunch
    cuGraphExecUpdate cuGraphExecKernelNodeSetParams cuGraphExecNodeSetParams
"""
CONTEXTS = """
    cuCtxCreate cuDevicePrimaryCtxRetain cuGLCtxCreate cuVDPAUCtxCreate cuGreenCtxCreate
    cuCtxDestroy cuCtxDetach cuCtxAttach cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset
    cuGreenCtxDestroy
"""
QUERIES = """
    cuMemGetInfo cuDeviceTotalMem cuMemPoolGetAttribute cuDeviceGetGraphMemAttribute
    nvmlDeviceGetMemoryInfo nvmlDeviceGetComputeRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetRunningProcessDetailList
"""
TABLE = {
    base: kind
    for kind, bases in (
        ("alloc", CHARGES),
        ("free", RELEASES),
        ("launch", LAUNCHES),
        ("context", CONTEXTS),
        ("query", QUERIES),
    )
    for base in bases.split()
}


@pytest.mark.parametrize(("base", "kind"), sorted({**EASILY_MISTAKEN, **TABLE}.items()))
def test_door_has_its_kind(base: str, kind: str) -> None:
    assert classify(base)[0] == kind


@pytest.mark.parametrize("base", HOST_MEMORY)
def test_host_memory_is_never_charged(base: str) -> None:
    assert classify(base) == ("plain", "host memory is never charged")


@pytest.mark.parametrize("library", ["cuda", "nvml"])
def test_every_name_of_the_model_was_reviewed(library: str, request: pytest.FixtureRequest) -> None:
    api: ir.Api = request.getfixturevalue(library)
    reasons = {item.name: item.reason for item in (*api.functions, *api.untyped)}

    assert [name for name, reason in reasons.items() if reason == UNREVIEWED] == []
    assert "" not in reasons.values()


@pytest.mark.parametrize("library", ["cuda", "nvml"])
def test_variants_of_a_base_share_their_kind(library: str, request: pytest.FixtureRequest) -> None:
    api: ir.Api = request.getfixturevalue(library)
    kinds: dict[str, set[str]] = {}
    for function in api.functions:
        kinds.setdefault(function.base, set()).add(function.kind)

    assert {base for base, found in kinds.items() if len(found) > 1} == set()


@pytest.mark.parametrize(
    ("newcomer", "kind"),
    [
        ("cuMemAllocCompressed", "alloc"),
        ("cuDeviceGetMemoryUsage", "query"),  # a wildcard for plain cuDeviceGet* must not take it
        ("cuGraphAddScratchAllocNode", "alloc"),
        ("cuQuickLaunch", "launch"),
        ("cuScratchRelease", "free"),
        ("cuTinyCtxOpen", "context"),
        ("nvmlDeviceGetTenantRunningProcesses", "query"),
    ],
)
def test_unknown_name_is_never_quietly_plain(newcomer: str, kind: str) -> None:
    assert classify(newcomer) == (kind, UNREVIEWED)


def test_rules_are_well_formed() -> None:
    assert {rule.kind for rule in RULES} <= set(ir.KINDS)
    assert all(rule.reason and rule.names for rule in RULES)


def test_every_pattern_still_matches_a_name(cuda: ir.Api, nvml: ir.Api) -> None:
    # A pattern that matches nothing is a typing error, or a rule shadowed since.
    bases = {function.base for api in (cuda, nvml) for function in api.functions}
    bases |= {item.name for api in (cuda, nvml) for item in api.untyped}
    spelled = [name for rule in RULES for name in rule.names.split() if "*" not in name]

    assert [name for name in spelled if name not in bases] == []
