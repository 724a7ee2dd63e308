// Stream memory operations: waiting for a value in memory, writing one. Must not know kernels.
//
// A wait is polled, since nobody tells when memory changes; it ends within a tenth of a millisecond
// (real time) of the write, or when its process has the device again, if what it waits for still
// holds then.
#include <string.h>

#include "cuda/graphs/capture.h"
#include "cuda/graphs/graph.h"
#include "cuda/memory/memory.h"
#include "cuda/streams/stream.h"
#include "machine/config.h"

namespace sim {

namespace {

struct MemoryWork : Work {
  CUdeviceptr address;
  uint64_t value;
  unsigned comparison;
  bool is_wide;
};

uint64_t BytesOf(const MemoryWork& work) {
  return work.is_wide ? sizeof(uint64_t) : sizeof(uint32_t);
}

bool IsSatisfied(uint64_t value, uint64_t wanted, unsigned comparison, bool is_wide) {
  switch (comparison) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic, so that counters may wrap
      return is_wide ? static_cast<int64_t>(value - wanted) >= 0
                     : static_cast<int32_t>(static_cast<uint32_t>(value - wanted)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (value & wanted) != 0;
    default:
      return (is_wide ? ~(value | wanted) : ~static_cast<uint32_t>(value | wanted)) != 0;
  }
}

bool HasValue(Work& work) {
  const auto& wait = static_cast<const MemoryWork&>(work);
  uint64_t value = 0;
  const uint64_t bytes = BytesOf(wait);
  if (!memory::Copy(reinterpret_cast<uintptr_t>(&value), wait.address, bytes)) return true;
  return IsSatisfied(value, wait.value, wait.comparison, wait.is_wide);
}

void WriteValue(Work& work) {
  const auto& write = static_cast<const MemoryWork&>(work);
  memory::Copy(write.address, reinterpret_cast<uintptr_t>(&write.value), BytesOf(write));
}

MemoryWork* MakeMemoryWork(const Operation& operation, const CUstreamBatchMemOpParams& params) {
  const bool waits = params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                     params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const bool writes = params.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                      params.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  auto* work = NewWork<MemoryWork>(waits ? Engine::kPoll : Engine::kNone, operation.device, 0);
  if (work == nullptr) return nullptr;
  work->in_turn = true;
  work->hands_on = false;
  work->trail_ns = GetConfig()->memop_gap_ns;
  work->is_wide = params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                  params.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (waits) {
    work->condition = HasValue;
    work->address = params.waitValue.address;
    work->value = work->is_wide ? params.waitValue.value64 : params.waitValue.value;
    work->comparison = params.waitValue.flags & CU_STREAM_WAIT_VALUE_NOR;
  } else if (writes) {
    work->action = WriteValue;
    work->address = params.writeValue.address;
    work->value = work->is_wide ? params.writeValue.value64 : params.writeValue.value;
  }
  return work;
}

bool IsAddressed(const CUstreamBatchMemOpParams& params) {
  return params.operation >= CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
         params.operation <= CU_STREAM_MEM_OP_WRITE_VALUE_64 &&
         params.operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
}

CUresult Validate(const CUstreamBatchMemOpParams& params) {
  if (!IsAddressed(params)) return CUDA_SUCCESS;
  const bool wide = params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    params.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  // Waits and writes have their address at the same place.
  const CUdeviceptr address = params.waitValue.address;
  if (address == 0 || address % (wide ? 8 : 4) != 0) return CUDA_ERROR_INVALID_VALUE;
  return memory::FindRange(address) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult IssueBatch(bool per_thread, CUstream handle, unsigned count,
                    CUstreamBatchMemOpParams* params, unsigned flags) {
  constexpr unsigned kMostOperations = 256;
  if (flags != 0 || count > kMostOperations || (count != 0 && params == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TimelineLock lock;
  stream::Stream* stream = nullptr;
  CUresult result = stream::Resolve(handle, per_thread, &stream);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) result = Validate(params[i]);
  if (result != CUDA_SUCCESS) return result;
  const context::Context* context = context::Find(AsHandle<CUcontext>(stream->context));
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Operation operation = MakeOperation(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, *context);
  bool complete = true;
  for (unsigned i = 0; i < count; ++i) complete = complete && operation.memory_ops.Push(params[i]);
  result = complete ? stream::Issue(lock, handle, per_thread, operation) : CUDA_ERROR_OUT_OF_MEMORY;
  DisposeOperation(&operation);
  return result;
}

CUresult IssueOne(bool per_thread, CUstream stream, CUstreamBatchMemOpType type,
                  CUdeviceptr address, uint64_t value, unsigned flags) {
  CUstreamBatchMemOpParams params = {};
  const bool waits =
      type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  if (waits) {
    params.waitValue.address = address;
    params.waitValue.value64 = value;
    params.waitValue.flags = flags;
  } else {
    params.writeValue.address = address;
    params.writeValue.value64 = value;
    params.writeValue.flags = flags;
  }
  params.operation = type;
  return IssueBatch(per_thread, stream, 1, &params, 0);
}

CUresult Wait32(bool per_thread, CUstream stream, CUdeviceptr addr, cuuint32_t value,
                unsigned flags) {
  return IssueOne(per_thread, stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}
CUresult Wait64(bool per_thread, CUstream stream, CUdeviceptr addr, cuuint64_t value,
                unsigned flags) {
  return IssueOne(per_thread, stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}
CUresult Write32(bool per_thread, CUstream stream, CUdeviceptr addr, cuuint32_t value,
                 unsigned flags) {
  return IssueOne(per_thread, stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}
CUresult Write64(bool per_thread, CUstream stream, CUdeviceptr addr, cuuint64_t value,
                 unsigned flags) {
  return IssueOne(per_thread, stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

}  // namespace

Work* PerformMemoryOps(TimelineLock& lock, const Operation& operation, Work* after,
                       CUresult* result) {
  Work* last = Join(lock, &after, 1);
  for (const CUstreamBatchMemOpParams& params : operation.memory_ops) {
    if (last == nullptr) break;
    Work* work = MakeMemoryWork(operation, params);
    if (work != nullptr) {
      Scheduler::After(work, last);
      lock.Submit(work);
    }
    ReleaseWork(last);
    last = work;
  }
  *result = last != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  return last;
}

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

#define SIM_VALUE(name, body, type)                                                          \
  SIM_TWINS(name, body, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), \
            stream, addr, value, flags)

// The first generation and the second differ in what hardware supports, not in what they do.
SIM_VALUE(cuStreamWaitValue32, Wait32, cuuint32_t);
SIM_VALUE(cuStreamWaitValue32_v2, Wait32, cuuint32_t);
SIM_VALUE(cuStreamWaitValue64, Wait64, cuuint64_t);
SIM_VALUE(cuStreamWaitValue64_v2, Wait64, cuuint64_t);
SIM_VALUE(cuStreamWriteValue32, Write32, cuuint32_t);
SIM_VALUE(cuStreamWriteValue32_v2, Write32, cuuint32_t);
SIM_VALUE(cuStreamWriteValue64, Write64, cuuint64_t);
SIM_VALUE(cuStreamWriteValue64_v2, Write64, cuuint64_t);

SIM_TWINS(cuStreamBatchMemOp, IssueBatch,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
           unsigned int flags),
          stream, count, paramArray, flags);
SIM_TWINS(cuStreamBatchMemOp_v2, IssueBatch,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
           unsigned int flags),
          stream, count, paramArray, flags);
