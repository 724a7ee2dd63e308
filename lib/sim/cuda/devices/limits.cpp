// cuCtxSetLimit and cuCtxGetLimit: heaps, buffers and stacks, and the device bytes they take.
//
// Owns the defaults and the price of each limit.  An empty context's bytes include the defaults, so
// only what exceeds them is charged.
#include "cuda/devices/context_state.h"
#include "cuda/memory/memory.h"
#include "machine/calls.h"
#include "machine/machine.h"
#include "machine/version.h"

namespace sim::context {
namespace {

constexpr uint64_t kThreadsPerSm = 2048;
constexpr uint64_t kBlocksPerSm = 32;
constexpr uint64_t kEngineBytes = 64 << 20;
constexpr uint64_t kMaxStackBytes = 512 << 10;
constexpr uint64_t kLeastPrintfBytes = 512 << 10;

struct LimitRule {
  uint64_t default_value;
  uint64_t price_per_unit;  // device bytes per unit of the limit; 0 = free; stacks: see PriceOf
  bool settable;
};

// Indexed by CUlimit.
constexpr LimitRule kRules[] = {
    {1024, 1, true},          // stack size per thread
    {8650752, 1, true},       // printf FIFO
    {8 << 20, 1, true},       // malloc heap
    {0, 0, false},            // device runtime sync depth: gone since compute capability 9.0
    {2048, 0, true},          // device runtime pending launches
    {64, 0, true},            // L2 fetch granularity
    {11796480, 0, true},      // persisting L2 cache
    {0, 0, false},            // shared memory of graphics contexts
    {0, 0, false},            // graphics contexts
    {0, 0, false},            // graphics contexts
    {0, kBlocksPerSm, true},  // memory of each block, since CUDA 13.4: see PriceOf
};
constexpr int kRuleCount = static_cast<int>(sizeof(kRules) / sizeof(kRules[0]));
constexpr int kEngines = kLimitCount - 1;  // in limit_bytes: what is no limit, but ends with them
static_assert(kRuleCount <= kEngines);
static_assert(CU_LIMIT_PERSISTING_L2_CACHE_SIZE == 6);

// Device bytes of a limit's value beyond its default, in whole granules.
uint64_t PriceOf(const Context& context, int limit, uint64_t value) {
  const LimitRule& rule = kRules[limit];
  if (rule.price_per_unit == 0 || value <= rule.default_value) return 0;
  uint64_t bytes = (value - rule.default_value) * rule.price_per_unit;
  if (limit == CU_LIMIT_STACK_SIZE) {  // a stack for every thread that can be resident
    bytes *= kThreadsPerSm * static_cast<uint64_t>(context.sm_count);
  }
  // A part for every block that can be resident, as a stack for every thread.
  if (limit == CU_LIMIT_PER_BLOCK_MEMORY_SIZE) bytes *= static_cast<uint64_t>(context.sm_count);
  return (bytes + machine::kGranuleBytes - 1) / machine::kGranuleBytes * machine::kGranuleBytes;
}

bool IsKnown(CUlimit limit) {
  const bool is_new = limit == CU_LIMIT_PER_BLOCK_MEMORY_SIZE;
  if (is_new && ConfiguredDriver().cuda_version < 13040) return false;
  return static_cast<int>(limit) >= 0 && static_cast<int>(limit) < kRuleCount;
}

// The value that the driver stores for the one asked for; false when it refuses it.
bool Accept(CUlimit limit, uint64_t* value) {
  if (limit == CU_LIMIT_STACK_SIZE) {
    if (*value > kMaxStackBytes) return false;
    *value = (*value + 15) / 16 * 16;
  }
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE && *value < kLeastPrintfBytes) *value = kLeastPrintfBytes;
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE) {
    return *value < uint64_t{1} << 46;
  }
  if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY) return *value <= 128;
  return true;
}

CUresult Set(Context* context, CUlimit limit, uint64_t value) {
  const uint64_t held_bytes = context->limit_bytes[limit];
  const uint64_t wanted_bytes = PriceOf(*context, static_cast<int>(limit), value);
  if (wanted_bytes > held_bytes &&
      !memory::ChargeHidden(context->device, wanted_bytes - held_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (wanted_bytes < held_bytes) memory::ReleaseHidden(context->device, held_bytes - wanted_bytes);
  context->limits[limit] = value;
  context->limit_bytes[limit] = wanted_bytes;
  return CUDA_SUCCESS;
}

}  // namespace

void ResetLimits(Context* context) {
  for (int limit = 0; limit < kRuleCount; ++limit) {
    context->limits[limit] = kRules[limit].default_value;
    context->limit_bytes[limit] = 0;
  }
}

bool GrowStack(Context* context, uint64_t bytes) {
  const uint64_t held_bytes = context->limit_bytes[CU_LIMIT_STACK_SIZE];
  const uint64_t wanted_bytes = PriceOf(*context, CU_LIMIT_STACK_SIZE, bytes);
  if (wanted_bytes <= held_bytes) return true;
  if (!memory::ChargeHidden(context->device, wanted_bytes - held_bytes)) return false;
  context->limit_bytes[CU_LIMIT_STACK_SIZE] = wanted_bytes;
  return true;
}

bool AddEngine(Context* context) {
  if (!memory::ChargeHidden(context->device, kEngineBytes)) return false;
  context->limit_bytes[kEngines] += kEngineBytes;
  return true;
}

void ReleaseLimits(Context* context) {
  for (uint64_t& bytes : context->limit_bytes) {
    memory::ReleaseHidden(context->device, bytes);
    bytes = 0;
  }
}

}  // namespace sim::context

extern "C" {

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SIM_CALL(cuCtxSetLimit, limit, value);
  // Stacks move when their size changes: nothing may run on them.
  if (limit == CU_LIMIT_STACK_SIZE && sim::stream::WaitForContext != nullptr) {
    sim::stream::WaitForContext(0);
  }
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (!sim::context::IsKnown(limit)) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::context::kRules[limit].settable) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  uint64_t accepted = value;
  if (!sim::context::Accept(limit, &accepted)) return CUDA_ERROR_INVALID_VALUE;
  return sim::context::Set(context, limit, accepted);
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  SIM_CALL(cuCtxGetLimit, pvalue, limit);
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pvalue == nullptr || !sim::context::IsKnown(limit)) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *pvalue = context->limits[limit];
  return CUDA_SUCCESS;
}

}  // extern "C"
