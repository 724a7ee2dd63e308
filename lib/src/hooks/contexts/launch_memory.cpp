#include "hooks/contexts/launch_memory.h"

#include <atomic>

#include "hooks/contexts/context_cost.h"
#include "policy/gang.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr size_t kPlaces = 4096;

// Not wiped on fork: a child of a process that launched anything cannot use the driver.
constinit std::atomic<uint64_t> seen[kPlaces] = {};
constinit std::atomic<bool> contexts_differ{false};

std::atomic<uint64_t>& PlaceOf(uint64_t key) { return seen[(key * 0x9e3779b97f4a7c15u) >> 52]; }
static_assert(kPlaces == size_t{1} << (64 - 52));

// Handles are even: the lowest bit tells what was done with one. No address has the highest.
enum Done : uint64_t { kLaunched = 0, kLookedUp = 1 };
constexpr uint64_t kIsCollective = uint64_t{1} << 63;

[[gnu::noinline]] uint64_t InContext(uint64_t key) {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return key;
  // Into the bits that addresses leave free.
  return key ^ (reinterpret_cast<uint64_t>(context) << 24);
}

uint64_t KeyOf(const void* handle, Done done) {
  const uint64_t key = reinterpret_cast<uint64_t>(handle) | done;
  return contexts_differ.load(std::memory_order_relaxed) ? InContext(key) : key;
}

bool WasSeen(uint64_t key) { return PlaceOf(key).load(std::memory_order_relaxed) == key; }

void Remember(uint64_t key) { PlaceOf(key).store(key, std::memory_order_relaxed); }

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

Launched WasLaunched(CUfunction function) {
  const uint64_t key = KeyOf(function, kLaunched);
  const uint64_t known = PlaceOf(key).load(std::memory_order_relaxed);
  if (known == key) [[likely]]
    return Launched::kBefore;
  return known == (key ^ kIsCollective) ? Launched::kCollective : Launched::kNever;
}

void RememberLaunch(CUfunction function, bool is_collective) {
  const uint64_t key = KeyOf(function, kLaunched);
  PlaceOf(key).store(is_collective ? key ^ kIsCollective : key, std::memory_order_relaxed);
}

bool IsCollective(CUfunction function) {
  const Launched known = WasLaunched(function);
  if (known != Launched::kNever) return known == Launched::kCollective;
  const char* name = nullptr;
  if (real::cuFuncGetName(&name, function) != CUDA_SUCCESS &&
      real::cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)) != CUDA_SUCCESS) {
    return false;
  }
  return name != nullptr && IsCollectiveName(name);
}

bool WasLookedUp(const void* handle) { return WasSeen(KeyOf(handle, kLookedUp)); }
void RememberLookUp(const void* handle) { Remember(KeyOf(handle, kLookedUp)); }

void TellContextsApart() { contexts_differ.store(true, std::memory_order_relaxed); }

void ForgetLaunches() {
  for (std::atomic<uint64_t>& place : seen) {
    if (place.load(std::memory_order_relaxed) != 0) place.store(0, std::memory_order_relaxed);
  }
}

uint64_t StackGrowthBytes(Fence* fence, FencedDevice* device, uint64_t context,
                          uint64_t stack_bytes) {
  if (stack_bytes == 0) return 0;
  size_t limit = 0;
  if (real::cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE) != CUDA_SUCCESS) limit = 0;
  const uint64_t launched_stack = LaunchedStack(fence, context);
  const uint64_t stack_now = limit > launched_stack ? limit : launched_stack;
  if (stack_bytes <= stack_now) return 0;
  return (stack_bytes - stack_now) * MostThreads(device->ordinal);
}

uint64_t StackOf(CUfunction function) {
  int bytes = 0;
  const CUresult rc =
      real::cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
  return rc == CUDA_SUCCESS && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

}  // namespace gpufence
