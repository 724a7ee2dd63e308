#include "hooks/launch_memory.h"

#include <atomic>

#include "hooks/context_cost.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr size_t kPlaces = 4096;

// Not wiped on fork: a child of a process that launched anything cannot use the driver.
constinit std::atomic<CUfunction> launched[kPlaces] = {};

std::atomic<CUfunction>& PlaceOf(CUfunction function) {
  const uint64_t mixed = reinterpret_cast<uint64_t>(function) * 0x9e3779b97f4a7c15u;
  return launched[mixed >> 52];
}
static_assert(kPlaces == size_t{1} << (64 - 52));

uint64_t Attribute(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  const CUresult rc = real::cuDeviceGetAttribute(&value, attribute, device);
  return rc == CUDA_SUCCESS && value > 0 ? static_cast<uint64_t>(value) : 0;
}

uint64_t MostThreads(CUdevice device) {
  return Attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
         Attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
}

}  // namespace

bool WasLaunched(CUfunction function) {
  return PlaceOf(function).load(std::memory_order_relaxed) == function;
}

void RememberLaunch(CUfunction function) {
  PlaceOf(function).store(function, std::memory_order_relaxed);
}

void ForgetLaunches() {
  for (std::atomic<CUfunction>& place : launched) {
    if (place.load(std::memory_order_relaxed) != nullptr) {
      place.store(nullptr, std::memory_order_relaxed);
    }
  }
}

uint64_t StackGrowthBytes(Fence* fence, FencedDevice* device, uint64_t context,
                          uint64_t stack_bytes, uint64_t* stack_now) {
  size_t limit = 0;
  if (real::cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE) != CUDA_SUCCESS) limit = 0;
  const uint64_t launched_stack = LaunchedStack(fence, context);
  *stack_now = limit > launched_stack ? limit : launched_stack;
  if (stack_bytes <= *stack_now) return 0;
  return (stack_bytes - *stack_now) * MostThreads(device->ordinal);
}

uint64_t StackOf(CUfunction function) {
  int bytes = 0;
  const CUresult rc =
      real::cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
  return rc == CUDA_SUCCESS && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

}  // namespace gpufence
