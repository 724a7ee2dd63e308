"""Which kind a function is of and why: one ordered table over base names, and nothing else.

Enforced kinds must be hooked or excused, so in doubt a name gets one: an excuse is one line in
passthrough.txt, a missed door is memory that nobody counts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """Base names (parted by blanks, `*` for any text) that share a kind for one reason."""

    kind: str
    reason: str
    names: str


# First match wins. One block a family of the accounting table.
RULES: tuple[Rule, ...] = (
    Rule("context", "initialises the driver, where limits are checked", "cuInit"),
    Rule(
        "lookup",
        "hands out function addresses that would go around the hooks",
        "cuGetProcAddress cuGetExportTable nvmlInternalGetExportTable",
    ),
    # Host memory comes before every allocation rule: it must always be granted.
    Rule(
        "plain",
        "host memory is never charged",
        "cuMemAllocHost cuMemHost* cuMemHostAlloc cuMemFreeHost",
    ),
    Rule("plain", "reserves addresses only, no bytes", "cuMemAddressReserve cuMemAddressFree"),
    Rule("alloc", "linear device memory", "cuMemAlloc cuMemAllocPitch"),
    Rule("alloc", "managed memory", "cuMemAllocManaged"),
    Rule(
        "alloc",
        "stream-ordered device memory from a pool",
        "cuMemAllocAsync cuMemAllocFromPoolAsync",
    ),
    Rule("free", "gives linear, managed or stream-ordered memory back", "cuMemFree cuMemFreeAsync"),
    Rule(
        "alloc",
        "decides where later stream-ordered allocations are taken from",
        "cuMemPoolCreate cuDeviceSetMemPool cuMemSetMemPool",
    ),
    Rule(
        "alloc",
        "opens pool memory that another process may already be charged for",
        "cuMemPoolImport*",
    ),
    Rule("query", "reports bytes reserved and used", "cuMemPoolGetAttribute"),
    Rule("free", "returns cached pool memory to the device", "cuMemPoolDestroy cuMemPoolTrimTo"),
    Rule(
        "free",
        "moves the threshold at which a pool returns cached memory, or its counters",
        "cuMemPoolSetAttribute",
    ),
    Rule(
        "plain",
        "names, shares or opens a pool to peers without new bytes",
        "cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuMemGetDefaultMemPool "
        "cuMemGetMemPool cuMemPoolExportPointer cuMemPoolExportToShareableHandle "
        "cuMemPoolGetAccess cuMemPoolSetAccess",
    ),
    Rule("alloc", "physical memory of the virtual memory API", "cuMemCreate"),
    Rule(
        "alloc",
        "adds a reference that keeps a physical allocation alive",
        "cuMemMap cuMemMapArrayAsync cuMemRetainAllocationHandle",
    ),
    Rule(
        "alloc",
        "opens physical memory that another process may already be charged for",
        "cuMemImportFromShareableHandle",
    ),
    Rule(
        "free",
        "drops a reference; the last one gives the physical memory back",
        "cuMemRelease cuMemUnmap",
    ),
    Rule(
        "plain",
        "describes or shares an allocation; the exporter keeps the charge",
        "cuMemExportToShareableHandle cuMemGetHandleForAddressRange cuMemSetAccess "
        "cuMemGetAccess cuMemGetAllocationGranularity "
        "cuMemGetAllocationPropertiesFromHandle cuMemGetAddressRange "
        "cuMemGetLocationInfo",
    ),
    Rule(
        "alloc",
        "a multicast object and what is bound to it hold memory on every device of the team",
        "cuMulticastCreate cuMulticastAddDevice cuMulticastBind*",
    ),
    Rule("free", "drops the references of a binding", "cuMulticastUnbind"),
    Rule("plain", "a size without state", "cuMulticastGetGranularity"),
    Rule(
        "alloc",
        "an endpoint and what is bound to it hold memory on its devices",
        "cuLogicalEndpointCreate cuLogicalEndpointAddDevice cuLogicalEndpointBind* "
        "cuLogicalEndpointImport",
    ),
    Rule(
        "free",
        "drops the references of an endpoint or a binding",
        "cuLogicalEndpointDestroy cuLogicalEndpointUnbind",
    ),
    Rule(
        "plain",
        "identifiers, limits and sharing; no bytes",
        "cuLogicalEndpointExport cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease "
        "cuLogicalEndpointIdReserve cuLogicalEndpointQuery",
    ),
    Rule(
        "alloc",
        "array memory (sparse and deferred arrays own nothing until mapped)",
        "cuArrayCreate cuArray3DCreate cuMipmappedArrayCreate",
    ),
    Rule("free", "gives array memory back", "cuArrayDestroy cuMipmappedArrayDestroy"),
    Rule(
        "plain",
        "describes an array; planes and levels are views",
        "cuArray*Get* cuMipmappedArrayGet*",
    ),
    Rule(
        "plain",
        "frames, semaphores and resources that belong to another API",
        "cuEGLStream* cuGraphicsResource* cuGraphicsSubResource* "
        "cuImportExternalSemaphore cuDestroyExternalSemaphore cuGLInit cuGLGetDevices "
        "cuGLSetBufferObjectMapFlags cuVDPAUGetDevice cuEGLApiInit",
    ),
    Rule(
        "alloc",
        "adds memory allocation nodes to a graph, itself or by copying a graph",
        "cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddChildGraphNode cuGraphClone",
    ),
    Rule(
        "alloc",
        "reserves the physical memory of a graph's allocation nodes",
        "cuGraphInstantiate* cuGraphUpload",
    ),
    Rule(
        "free",
        "frees graph memory, ends its owner, or returns cached graph memory to the device",
        "cuGraphAddMemFreeNode cuGraphDestroy cuGraphDestroyNode cuGraphExecDestroy "
        "cuDeviceGraphMemTrim",
    ),
    Rule("query", "reports bytes reserved and used by graphs", "cuDeviceGetGraphMemAttribute"),
    Rule("plain", "resets a high-water mark only", "cuDeviceSetGraphMemAttribute"),
    Rule("launch", "runs a graph, its kernels and its memory", "cuGraphLaunch"),
    Rule(
        "launch",
        "changes the work of a graph after it was instantiated",
        "cuGraphExecUpdate cuGraphExecKernelNodeSetParams cuGraphExecNodeSetParams "
        "cuGraphExecChildGraphNodeSetParams cuGraphNodeSetEnabled",
    ),
    Rule(
        "plain",
        "builds or describes a graph; work and memory count when it is instantiated and runs",
        "cuGraphAddDependencies cuGraphAddBatchMemOpNode cuGraphAddEmptyNode "
        "cuGraphAddEventRecordNode cuGraphAddEventWaitNode "
        "cuGraphAddExternalSemaphores*Node cuGraphAddHostNode cuGraphAddKernelNode "
        "cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphRemoveDependencies "
        "cuGraphCreate cuGraphConditionalHandleCreate cuGraphGet* cuGraph*Get* "
        "cuGraph*Set* cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams "
        "cuGraphKernelNodeCopyAttributes cuGraphNodeFindInClone "
        "cuGraphDebugDotPrint cuGraphRetainUserObject cuGraphReleaseUserObject "
        "cuUserObject*",
    ),
    Rule("stream", "queues a host function, no GPU work", "cuLaunchHostFunc"),
    Rule("launch", "runs a kernel", "cuLaunch*"),
    Rule(
        "context",
        "creates a context or takes a reference to one",
        "cuCtxCreate cuCtxAttach cuCtxFromGreenCtx cuDevicePrimaryCtxRetain "
        "cuGLCtxCreate cuVDPAUCtxCreate cuGreenCtxCreate",
    ),
    Rule(
        "context",
        "drops, resets or destroys a context and all memory in it",
        "cuCtxDestroy cuCtxDetach cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset "
        "cuGreenCtxDestroy",
    ),
    Rule(
        "alloc", "sizes the device heap, printf buffer, stacks and launch queues", "cuCtxSetLimit"
    ),
    Rule(
        "stream",
        "orders the work of a whole context",
        "cuCtxRecordEvent cuCtxWaitEvent cuGreenCtxRecordEvent cuGreenCtxWaitEvent "
        "cuGreenCtxStreamCreate cuCtxSynchronize",
    ),
    Rule(
        "plain",
        "reads or sets the state of a context that exists",
        "cuCtxGet* cuCtxSet* cuCtxPushCurrent cuCtxPopCurrent cuCtxEnablePeerAccess "
        "cuCtxDisablePeerAccess cuCtxResetPersistingL2Cache cuDevicePrimaryCtxGetState "
        "cuDevicePrimaryCtxSetFlags cuGreenCtxGet*",
    ),
    Rule(
        "alloc",
        "loads code and global variables into device memory",
        "cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary "
        "cuLibraryLoadData cuLibraryLoadFromFile",
    ),
    Rule(
        "alloc",
        "a lazily loaded module reaches the device at the first such request",
        "cuModuleGetFunction cuModuleGetGlobal cuLibraryGetKernel cuLibraryGetModule "
        "cuLibraryGetGlobal cuLibraryGetManaged cuLibraryGetUnifiedFunction "
        "cuKernelGetFunction cuFuncLoad",
    ),
    Rule("free", "unloads code and global variables", "cuModuleUnload cuLibraryUnload"),
    Rule(
        "plain",
        "describes, configures or links code without loading it",
        "cuModuleGet* cuModuleEnumerateFunctions cuLibraryGetKernelCount "
        "cuLibraryEnumerateKernels cuKernel* cuFunc* cuLink* cuParamSet* cuOccupancy*",
    ),
    Rule(
        "alloc",
        "opens memory that another process may already be charged for",
        "cuIpcOpenMemHandle",
    ),
    Rule("free", "closes memory of another process", "cuIpcCloseMemHandle"),
    Rule(
        "plain",
        "shares handles; the exporter keeps the charge",
        "cuIpcGetMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle",
    ),
    Rule(
        "alloc",
        "maps memory that another API allocated",
        "cuImportExternalMemory cuExternalMemoryGetMapped* cuGraphicsEGLRegisterImage "
        "cuGraphicsGLRegister* cuGraphicsVDPAURegister* cuGLRegisterBufferObject "
        "cuGLMapBufferObject*",
    ),
    Rule(
        "free",
        "lets go of memory that another API allocated",
        "cuDestroyExternalMemory cuGraphicsUnregisterResource "
        "cuGLUnregisterBufferObject cuGLUnmapBufferObject*",
    ),
    Rule(
        "free",
        "takes a process off the device without a free call",
        "cuCheckpointProcessCheckpoint",
    ),
    Rule(
        "alloc",
        "puts a process back on the device without an allocation call",
        "cuCheckpointProcessRestore",
    ),
    Rule("plain", "checkpoint bookkeeping", "cuCheckpoint*"),
    Rule(
        "query",
        "reports the memory of a device",
        "cuMemGetInfo cuDeviceTotalMem nvmlDeviceGetMemoryInfo "
        "nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetAttributes "
        "nvmlDeviceGetConfComputeMemSizeInfo "
        "nvmlDeviceGetConfComputeProtectedMemoryUsage nvmlDeviceGetMemoryLimits "
        "nvmlVgpuInstanceGetFbUsage",
    ),
    Rule(
        "query",
        "reports which processes hold how much memory",
        "nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetGraphicsRunningProcesses "
        "nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetRunningProcessDetailList "
        "nvmlDeviceGetAccountingStats nvmlVgpuInstanceGetAccountingStats",
    ),
    Rule("copy", "copies memory", "cuMemcpy* cuFabricCpyBatchAsync"),
    Rule("copy", "fills memory", "cuMemset*"),
    Rule(
        "copy",
        "moves, discards or unpacks pages without new bytes",
        "cuMemPrefetch* cuMemDiscard* cuMemBatchDecompressAsync",
    ),
    Rule(
        "plain",
        "hints and attributes of memory that exists",
        "cuMemAdvise cuMemRangeGet* cuPointerGet* cuPointerSet* cuMemGetAttribute "
        "cuFlushGPUDirectRDMAWrites",
    ),
    Rule(
        "stream",
        "creates, orders, captures or describes streams and events",
        "cuStream* cuEvent* cuSignalExternalSemaphoresAsync "
        "cuWaitExternalSemaphoresAsync cuGraphicsMapResources cuGraphicsUnmapResources "
        "cuThreadExchangeStreamCaptureMode",
    ),
    Rule(
        "plain",
        "texture, surface and tensor descriptors over memory that exists",
        "cuTex* cuSurf* cuTensorMap* cuTensorMapSetAllocationClass",
    ),
    Rule(
        "plain",
        "describes devices and their peers",
        "cuDeviceGet* cuDeviceCanAccessPeer cuDeviceComputeCapability cuDevSm* "
        "cuDevResource* cuDeviceRegisterAsyncNotification "
        "cuDeviceUnregisterAsyncNotification cuDriverGetVersion",
    ),
    Rule(
        "plain",
        "errors, logs, core dumps and profiling",
        "cuGetErrorName cuGetErrorString cuLogs* cuCoredump* cuProfiler*",
    ),
    Rule(
        "plain",
        "objects in host memory",
        "nvmlEventSet* nvmlSystemEventSet* nvmlGpmSample* nvmlGpmSampleAlloc",
    ),
    Rule(
        "plain",
        "partitions a GPU; needs the right to administrate it",
        "nvmlDeviceCreateGpuInstance* nvmlGpuInstanceCreate* nvmlGpuInstanceDestroy "
        "nvmlComputeInstanceDestroy",
    ),
    Rule(
        "plain",
        "reads or sets something other than memory",
        "nvmlInit* nvmlShutdown nvmlErrorString nvmlSystem* nvmlUnit* nvmlDevice* "
        "nvmlDeviceSetMemoryLimits "
        "nvmlGpuInstance* nvmlComputeInstance* nvmlVgpu* nvmlGpm* nvmlGetVgpu* "
        "nvmlSetVgpu* nvmlGetExcluded* nvmlRetry_*",
    ),
)
