// Operations as work. Must not know: streams, graphs, captures, who asked.
#include "cuda/streams/launch_operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/graphs/graph.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/event.h"
#include "machine/calls.h"
#include "machine/config.h"

namespace sim {

namespace {

// Plausible for a large GPU: 10^6 bytes per second inside device memory, and what any transfer
// takes at least.
constexpr uint64_t kLocalMbPerS = 2'000'000;
constexpr uint64_t kTransferFloorNs = 1'000;
constexpr uint64_t kWideBlocks = 65'536;  // of a grid in front of which the GPU pauses longest

struct OperationWork : Work {
  Operation operation;
};

uint64_t TransferNs(uint64_t bytes, uint64_t mb_per_s) {
  const uint64_t ns = bytes * 1'000 / mb_per_s;
  return ns > kTransferFloorNs ? ns : kTransferFloorNs;
}

uint64_t CopiedBytes(const CUDA_MEMCPY3D_v2& copy) {
  return uint64_t{copy.WidthInBytes} * copy.Height * copy.Depth;
}

Work* MakeCopy(const Operation& operation) {
  const CUDA_MEMCPY3D_v2& copy = operation.copy;
  const bool from_device = SourceSide(copy) == Side::kDevice;
  const bool to_device = DestinationSide(copy) == Side::kDevice;
  Engine engine = Engine::kNone;  // host to host: the processor's business
  if (from_device) engine = to_device ? Engine::kCopyLocal : Engine::kCopyOut;
  if (!from_device && to_device) engine = Engine::kCopyIn;
  const auto bus = static_cast<uint64_t>(GetConfig()->bus_mb_per_s);
  const uint64_t speed = engine == Engine::kCopyLocal ? kLocalMbPerS : bus;
  return NewWork<OperationWork>(engine, operation.device, TransferNs(CopiedBytes(copy), speed));
}

Work* MakeFill(const Operation& operation) {
  const CUDA_MEMSET_NODE_PARAMS_v2& fill = operation.fill;
  const uint64_t bytes =
      uint64_t{fill.width} * fill.elementSize * (fill.height > 0 ? fill.height : 1);
  Work* work =
      NewWork<OperationWork>(Engine::kCompute, operation.device, TransferNs(bytes, kLocalMbPerS));
  if (work != nullptr) work->sms = static_cast<uint16_t>(operation.sm_count);
  return work;
}

uint64_t BlocksOf(const KernelLaunch& kernel) {
  return uint64_t{kernel.grid[0]} * kernel.grid[1] * kernel.grid[2];
}

// What a gpufence_pace kernel saw of the GPU's clock; nowhere once its module is gone.
void WritePaces(Work& work) {
  const uint64_t step_ns = GetConfig()->event_step_ns;
  const uint64_t seen[] = {AtResolution(work.start_ns, step_ns),
                           AtResolution(work.end_ns, step_ns)};
  const uint64_t paces = static_cast<OperationWork&>(work).operation.kernel.paces;
  if (!memory::IsDeviceRange(paces, sizeof seen)) return;
  MoveBytes(PlainCopy(paces, reinterpret_cast<uint64_t>(seen), sizeof seen));
}

// "BEGIN END BLOCKS\n": when it ran, by the machine's clock.
void TellRan(const Work& work) {
  const uint64_t blocks = BlocksOf(static_cast<const OperationWork&>(work).operation.kernel);
  char line[72];
  const int bytes = snprintf(
      line, sizeof line, "%llu %llu %llu\n", static_cast<unsigned long long>(work.start_ns),
      static_cast<unsigned long long>(work.end_ns), static_cast<unsigned long long>(blocks));
  AppendLine(GetConfig()->kernels, line, static_cast<size_t>(bytes));
}

void EndKernel(Work& work) {
  if (GetConfig()->kernels[0] != '\0') TellRan(work);
  if (static_cast<OperationWork&>(work).operation.kernel.paces != 0) WritePaces(work);
}

Work* MakeKernel(const Operation& operation) {
  const KernelLaunch& kernel = operation.kernel;
  Work* work = NewWork<OperationWork>(Engine::kCompute, operation.device, kernel.duration_ns);
  if (work == nullptr) return nullptr;
  const uint64_t blocks = BlocksOf(kernel);
  const auto room = static_cast<uint64_t>(operation.sm_count);
  work->sms = static_cast<uint16_t>(blocks < room ? blocks : room);
  work->meets = kernel.meets;
  work->writes_late = kernel.paces != 0;
  work->action = EndKernel;
  return work;
}

// What passes in front of a kernel or a fill.
void SetPauses(Work* work, const Operation& operation, Pause pause) {
  const Config& config = *GetConfig();
  uint64_t wide_ns = 0;
  if (operation.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const uint64_t blocks = BlocksOf(operation.kernel);
    wide_ns = config.wide_gap_ns * (blocks < kWideBlocks ? blocks : kWideBlocks) / kWideBlocks;
  }
  if (pause != Pause::kNone) {
    work->gap_ns = (pause == Pause::kStep ? config.step_gap_ns : config.launch_gap_ns) + wide_ns;
  }
  work->lag_ns = config.start_ns + wide_ns;
}

Work* MakeRecord(const Operation& operation) {
  const Config& config = *GetConfig();
  Work* work = NewWork<OperationWork>(Engine::kRecord, event::PhysicalDeviceOf(operation.event),
                                      config.event_ns);
  if (work != nullptr) work->trail_ns = config.event_gap_ns;
  return work;
}

void CallHost(Work& work) {
  const HostCall& host = static_cast<OperationWork&>(work).operation.host;
  if (host.callback != nullptr) {
    host.callback(host.stream, CUDA_SUCCESS, host.argument);
  } else {
    host.function(host.argument);
  }
}

void MoveWhenDue(Work& work) { MoveBytes(static_cast<OperationWork&>(work).operation.copy); }
void FillWhenDue(Work& work) { FillBytes(static_cast<OperationWork&>(work).operation.fill); }

// The work itself, with its effect: at once, or left to be done when due.
Work* MakeWork(TimelineLock& lock, const Operation& operation, CUresult* result) {
  Work* work = nullptr;
  const bool later = lock.is_memory_undecided();
  switch (operation.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return MakeKernel(operation);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (!later && (*result = MoveBytes(operation.copy)) != CUDA_SUCCESS) return nullptr;
      work = MakeCopy(operation);
      if (work != nullptr && later) work->action = MoveWhenDue;
      return work;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      if (!later && (*result = FillBytes(operation.fill)) != CUDA_SUCCESS) return nullptr;
      work = MakeFill(operation);
      if (work != nullptr && later) work->action = FillWhenDue;
      return work;
    case CU_GRAPH_NODE_TYPE_HOST:
      work = NewWork<OperationWork>(Engine::kHost, operation.device, 0);
      if (work != nullptr) work->action = CallHost;
      return work;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return MakeRecord(operation);
    default:
      return NewWork<OperationWork>(Engine::kNone, operation.device, 0);
  }
}

}  // namespace

Operation MakeOperation(CUgraphNodeType type, const context::Context& context) {
  Operation operation;
  memset(&operation, 0, sizeof(operation));
  operation.type = type;
  operation.context = context.handle;
  operation.device = context::PhysicalDevice(context);
  operation.sm_count = context.sm_count;
  return operation;
}

bool CloneOperation(const Operation& from, Operation* to) {
  *to = from;
  switch (from.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      to->kernel.parameters = nullptr;
      if (from.kernel.parameter_bytes == 0 || from.kernel.parameters == nullptr) return true;
      to->kernel.parameters = static_cast<uint8_t*>(malloc(from.kernel.parameter_bytes));
      if (to->kernel.parameters == nullptr) return false;
      memcpy(to->kernel.parameters, from.kernel.parameters, from.kernel.parameter_bytes);
      return true;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      memset(&to->memory_ops, 0, sizeof(to->memory_ops));
      for (const CUstreamBatchMemOpParams& op : from.memory_ops) {
        if (!to->memory_ops.Push(op)) return false;
      }
      return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      to->graph = graph::Clone(from.graph);
      return to->graph != 0;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      memset(&to->condition.bodies, 0, sizeof(to->condition.bodies));
      for (uint64_t body : from.condition.bodies) {
        const uint64_t clone = graph::Clone(body);
        if (clone == 0 || !to->condition.bodies.Push(clone)) return false;
      }
      return true;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      graph::RetainMemory(from.allocation.dptr);
      return true;
    default:
      return true;
  }
}

void DisposeOperation(Operation* operation) {
  switch (operation->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      free(operation->kernel.parameters);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      operation->memory_ops.Free();
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      graph::Destroy(operation->graph);
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      for (uint64_t body : operation->condition.bodies) graph::Destroy(body);
      operation->condition.bodies.Free();
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      graph::ReleaseMemory(operation->allocation.dptr);
      break;
    default:
      break;
  }
}

Work* Join(TimelineLock& lock, Work* const* before, size_t count) {
  Work* join = NewWork(Engine::kNone, 0, 0);
  if (join == nullptr) return nullptr;
  for (size_t i = 0; i < count; ++i) Scheduler::After(join, before[i]);
  lock.Submit(join);
  return join;
}

Work* Perform(TimelineLock& lock, const Operation& operation, const Behind& behind,
              CUresult* result) {
  *result = CUDA_ERROR_OUT_OF_MEMORY;
  if (operation.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return graph::PerformNodes(lock, operation.graph, behind, result);
  }
  if (operation.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
    return PerformMemoryOps(lock, operation, behind.work, result);
  }
  if (operation.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return graph::PerformCondition(lock, operation.condition, behind, result);
  }
  if (operation.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
      !graph::NoteAllocated(operation.allocation.dptr)) {
    return nullptr;
  }
  if (operation.type == CU_GRAPH_NODE_TYPE_MEM_FREE) graph::NoteFreed(operation.freed);
  Work* work = MakeWork(lock, operation, result);
  if (work == nullptr) return nullptr;

  // Pointers that the operation owns stay the caller's: work outlives no launch argument.
  static_cast<OperationWork*>(work)->operation = operation;
  work->priority = static_cast<int8_t>(behind.priority);
  if (work->engine == Engine::kCompute) SetPauses(work, operation, behind.pause);
  // It is the copy engine that reaches it, whoever has the SMs (H200).
  if (work->engine == Engine::kRecord && behind.on_copies) work->engine = Engine::kNone;
  Scheduler::After(work, behind.work);
  if (operation.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) event::Await(lock, work, operation.event);
  lock.Submit(work);
  if (operation.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    event::NoteRecord(lock, operation.event, work);
  }
  *result = CUDA_SUCCESS;
  return work;
}

}  // namespace sim
