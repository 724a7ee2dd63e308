// link: cuda
// flags: -Wl,-z,lazy
// Facts: context limits: defaults, rounding, refusals, and which of them take device memory.

#include <string>

#include "gpu.h"

namespace conformance {
namespace {

struct Named {
  const char* name;
  CUlimit limit;
};

constexpr Named kLimits[] = {
    {"stack", CU_LIMIT_STACK_SIZE},
    {"printf_fifo", CU_LIMIT_PRINTF_FIFO_SIZE},
    {"malloc_heap", CU_LIMIT_MALLOC_HEAP_SIZE},
    {"sync_depth", CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH},
    {"pending_launches", CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT},
    {"l2_fetch", CU_LIMIT_MAX_L2_FETCH_GRANULARITY},
    {"persisting_l2", CU_LIMIT_PERSISTING_L2_CACHE_SIZE},
};

long long ValueOf(CUlimit limit) {
  size_t value = 0;
  return cuCtxGetLimit(&value, limit) == CUDA_SUCCESS ? static_cast<long long>(value) : -1;
}

void Defaults(Facts& facts) {
  for (const Named& one : kLimits) {
    size_t value = 77;
    facts.Code(std::string("default.") + one.name, cuCtxGetLimit(&value, one.limit));
    if (one.limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
      facts.Measured("default.persisting_l2.is", static_cast<long long>(value));
    } else {
      facts.Number(std::string("default.") + one.name + ".is", static_cast<long long>(value));
    }
  }
  size_t value = 77;
  facts.Code("get.bad_limit", cuCtxGetLimit(&value, static_cast<CUlimit>(99)));
  facts.Code("get.null", cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
  facts.Code("set.bad_limit", cuCtxSetLimit(static_cast<CUlimit>(99), 1024));
}

void Setting(Facts& facts) {
  facts.Code("stack.set_1000", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1000));
  facts.Number("stack.after_1000", ValueOf(CU_LIMIT_STACK_SIZE));
  facts.Code("stack.set_0", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0));
  facts.Number("stack.after_0", ValueOf(CU_LIMIT_STACK_SIZE));
  facts.Code("stack.set_huge", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size_t{1} << 30));
  facts.Number("stack.after_huge", ValueOf(CU_LIMIT_STACK_SIZE));
  facts.Code("printf_fifo.set_2MiB", cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 * kMib));
  facts.Number("printf_fifo.after_2MiB", ValueOf(CU_LIMIT_PRINTF_FIFO_SIZE));
  facts.Code("printf_fifo.set_1000", cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1000));
  facts.Number("printf_fifo.after_1000", ValueOf(CU_LIMIT_PRINTF_FIFO_SIZE));
  facts.Code("l2_fetch.set_64", cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64));
  facts.Number("l2_fetch.after_64", ValueOf(CU_LIMIT_MAX_L2_FETCH_GRANULARITY));
}

// A kernel that needs the device heap makes the driver set it up at its first launch; an image
// that does not mention malloc never pays.
void Heap(Facts& facts) {
  const size_t before = FreeBytes();
  facts.Code("heap.set_256MiB", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 256 * kMib));
  facts.Number("heap.after_256MiB", ValueOf(CU_LIMIT_MALLOC_HEAP_SIZE));
  facts.Number("heap.set_takes", DroppedSince(before));
  const Kernels kernels = LoadKernels();
  LaunchEmpty(kernels, nullptr);
  cuCtxSynchronize();
  facts.Is("heap.kernel_without_malloc_takes_it",
           DroppedSince(before) >= static_cast<long long>(256 * kMib));
  facts.Measured("heap.taken_after_a_launch", DroppedSince(before));
  facts.Code("heap.set_after_launch", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 128 * kMib));
  facts.Code("heap.set_beyond_total", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * TotalBytes()));
  facts.Measured("heap.after_beyond_total", ValueOf(CU_LIMIT_MALLOC_HEAP_SIZE));
}

void StackCosts(Facts& facts) {
  cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024);
  const size_t before = FreeBytes();
  facts.Code("stack.set_16KiB", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16 * kKib));
  facts.Is("stack.set_takes_memory_at_once", DroppedSince(before) > 0);
  facts.Measured("stack.taken_by_set", DroppedSince(before));
  facts.Code("stack.back_to_1KiB", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
  facts.Is("stack.back_gives_memory_back", DroppedSince(before) == 0);
  facts.Measured("stack.left_after_back", DroppedSince(before));
}

void Settings(Facts& facts) {
  CUfunc_cache cache{};
  facts.Code("cache.get", cuCtxGetCacheConfig(&cache));
  facts.Number("cache.is", cache);
  facts.Code("cache.set_nonsense", cuCtxSetCacheConfig(static_cast<CUfunc_cache>(99)));
  CUsharedconfig shared{};
  facts.Code("shared_config.get", cuCtxGetSharedMemConfig(&shared));
  facts.Code("persisting_l2.reset", cuCtxResetPersistingL2Cache());
  CUcontext current = nullptr;
  facts.Code("peer.enable_self", cuCtxEnablePeerAccess((cuCtxGetCurrent(&current), current), 0));
  facts.Code("peer.disable_self", cuCtxDisablePeerAccess(current));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("limits");
  UsePrimary(FirstDevice(facts));
  Defaults(facts);
  Heap(facts);
  Setting(facts);
  StackCosts(facts);
  Settings(facts);
  return 0;
}
