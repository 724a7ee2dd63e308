// link: cuda
// flags: -pthread -Wl,-z,lazy
// Facts: the context stack of a thread, the reference count of the primary context, and what is
// left of a context once it is destroyed.

#include <thread>

#include "child.h"
#include "gpu.h"

namespace conformance {
namespace {

CUcontext Current() {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  return context;
}

CUresult AllocateAndFree() {
  CUdeviceptr memory = 0;
  const CUresult code = cuMemAlloc_v2(&memory, kMib);
  if (code == CUDA_SUCCESS) cuMemFree_v2(memory);
  return code;
}

int PrimaryActive(CUdevice device) {
  unsigned flags = 77;
  int active = -1;
  cuDevicePrimaryCtxGetState(device, &flags, &active);
  return active;
}

void PrimaryUnretained(Facts& facts, CUdevice device) {
  unsigned flags = 77;
  int active = -1;
  CUcontext context = nullptr;
  facts.Code("primary.state", cuDevicePrimaryCtxGetState(device, &flags, &active));
  facts.Number("primary.flags_at_start", flags);
  facts.Number("primary.active_at_start", active);
  facts.Code("primary.release_unretained", cuDevicePrimaryCtxRelease_v2(device));
  facts.Code("primary.reset_unretained", cuDevicePrimaryCtxReset_v2(device));
  facts.Code("primary.set_flags_inactive",
             cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_YIELD));
  facts.Code("primary.set_flags_nonsense", cuDevicePrimaryCtxSetFlags_v2(device, 0x10000));
  facts.Code("primary.retain_bad_device", cuDevicePrimaryCtxRetain(&context, 4711));
}

// Who ends a primary context waits for its kernels; the next life has another id.
void PrimaryEndsAtWork(Facts& facts, CUdevice device) {
  constexpr unsigned long long kSpinNs = 400'000'000;
  unsigned long long ids[2] = {};
  CUcontext primary = nullptr;
  int round = 0;
  for (const bool reset : {true, false}) {
    cuDevicePrimaryCtxRetain(&primary, device);
    cuCtxSetCurrent(primary);
    cuCtxGetId(primary, &ids[round++]);
    CUstream stream = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    const long long begin_ns = NowNs();
    LaunchSpin(LoadKernels(), stream, kSpinNs);
    if (reset) cuDevicePrimaryCtxReset_v2(device);
    cuDevicePrimaryCtxRelease_v2(device);
    facts.Is(reset ? "primary.reset_waits_for_kernels" : "primary.release_waits_for_kernels",
             NowNs() - begin_ns > static_cast<long long>(kSpinNs));
  }
  facts.Is("primary.reborn_has_another_id", ids[0] != ids[1]);
  cuCtxSetCurrent(nullptr);
}

// What the last release ended, and what a further retain brings back.
void PrimaryReborn(Facts& facts, CUdevice device, CUcontext before, CUdeviceptr old_memory) {
  CUcontext reborn = nullptr;
  facts.Code("primary.retain_reborn", cuDevicePrimaryCtxRetain(&reborn, device));
  facts.Is("primary.reborn_has_same_handle", reborn == before);
  facts.Code("primary.old_memory_is_gone", cuMemFree_v2(old_memory));
  facts.Code("primary.usable_when_reborn", AllocateAndFree());
  facts.Code("primary.reset", cuDevicePrimaryCtxReset_v2(device));
  facts.Number("primary.active_after_reset", PrimaryActive(device));
  facts.Code("primary.usable_after_reset", AllocateAndFree());
  facts.Code("primary.release_after_reset", cuDevicePrimaryCtxRelease_v2(device));
  cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_AUTO);
  cuCtxSetCurrent(nullptr);
}

// Leaves the thread without a context and the primary context without a retain.
void PrimaryCounts(Facts& facts, CUdevice device) {
  unsigned flags = 77;
  int active = -1;
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  facts.Code("primary.retain", cuDevicePrimaryCtxRetain(&first, device));
  facts.Is("primary.retain_makes_nothing_current", Current() == nullptr);
  facts.Code("primary.retain_again", cuDevicePrimaryCtxRetain(&second, device));
  facts.Is("primary.same_handle", first == second);
  cuDevicePrimaryCtxGetState(device, &flags, &active);
  facts.Number("primary.flags_as_set", flags);
  facts.Number("primary.active_when_retained", active);
  facts.Code("primary.set_flags_active", cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_AUTO));
  facts.Code("primary.destroy_through_cuCtxDestroy", cuCtxDestroy_v2(first));

  cuCtxSetCurrent(first);
  CUdeviceptr memory = 0;
  cuMemAlloc_v2(&memory, 64 * kMib);
  facts.Code("primary.release", cuDevicePrimaryCtxRelease_v2(device));
  facts.Number("primary.active_while_one_is_left", PrimaryActive(device));
  facts.Code("primary.usable_while_one_is_left", AllocateAndFree());
  facts.Code("primary.release_last", cuDevicePrimaryCtxRelease_v2(device));
  facts.Number("primary.active_after_last", PrimaryActive(device));
  facts.Is("primary.still_current_after_last", Current() == first);
  facts.Code("primary.allocation_after_last", AllocateAndFree());
  facts.Code("primary.set_current_after_last", cuCtxSetCurrent(first));
  facts.Code("primary.release_too_often", cuDevicePrimaryCtxRelease_v2(device));
  PrimaryReborn(facts, device, first, memory);
}

void Stack(Facts& facts, CUdevice device) {
  CUcontext a = nullptr;
  CUcontext b = nullptr;
  CUcontext popped = nullptr;
  facts.Code("stack.pop_empty", cuCtxPopCurrent_v2(&popped));
  facts.Code("create", cuCtxCreate_v2(&a, 0, device));
  facts.Is("create.makes_current", Current() == a);
  facts.Code("create.second", cuCtxCreate_v2(&b, 0, device));
  facts.Is("create.second_is_another", a != b);
  facts.Is("create.second_makes_current", Current() == b);
  facts.Code("stack.pop", cuCtxPopCurrent_v2(&popped));
  facts.Is("stack.pop_gives_top", popped == b);
  facts.Is("stack.pop_uncovers_below", Current() == a);
  facts.Code("stack.push", cuCtxPushCurrent_v2(b));
  facts.Code("stack.push_again", cuCtxPushCurrent_v2(b));
  facts.Is("stack.push_makes_current", Current() == b);
  facts.Code("stack.set_replaces_top", cuCtxSetCurrent(a));
  cuCtxPopCurrent_v2(&popped);
  facts.Is("stack.below_replaced_top", popped == a && Current() == b);
  facts.Code("stack.set_null", cuCtxSetCurrent(nullptr));
  facts.Is("stack.set_null_uncovers_below", Current() == a);
  facts.Code("stack.push_null", cuCtxPushCurrent_v2(nullptr));
  facts.Is("stack.after_push_null_is_a", Current() == a);
  facts.Code("stack.pop_into_null", cuCtxPopCurrent_v2(nullptr));
  facts.Is("stack.empty_at_end", Current() == nullptr);

  cuCtxPushCurrent_v2(a);
  cuCtxPushCurrent_v2(b);
  facts.Code("destroy.below_top", cuCtxDestroy_v2(a));
  facts.Is("destroy.below_top_leaves_top", Current() == b);
  facts.Code("destroy.top", cuCtxDestroy_v2(b));
  facts.Is("destroy.top_uncovers_null", Current() == nullptr);
  facts.Is("destroy.top_uncovers_destroyed_handle", Current() == a);
  facts.Code("destroy.then_allocate", AllocateAndFree());
  facts.Code("destroy.null", cuCtxDestroy_v2(nullptr));
  while (cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS) continue;
}

void Creating(Facts& facts, CUdevice device) {
  CUcontext context = reinterpret_cast<CUcontext>(kPoison);
  facts.Code("create.bad_device", cuCtxCreate_v2(&context, 0, 4711));
  facts.Code("create.bad_flags", cuCtxCreate_v2(&context, 0x40000000, device));
  facts.Code("create.null", cuCtxCreate_v2(nullptr, 0, device));
  facts.Is("create.refused_leaves_output", context == reinterpret_cast<CUcontext>(kPoison));

  facts.Code("create.blocking_sync", cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, device));
  unsigned flags = 0;
  CUdevice back = -77;
  unsigned version = 0;
  int lowest = 77;
  int highest = 77;
  facts.Code("cuCtxGetFlags", cuCtxGetFlags(&flags));
  facts.Number("flags_as_created", flags);
  facts.Code("cuCtxGetDevice", cuCtxGetDevice(&back));
  facts.Is("device_as_created", back == device);
  facts.Code("cuCtxGetDevice.null", cuCtxGetDevice(nullptr));
  facts.Code("cuCtxGetApiVersion", cuCtxGetApiVersion(context, &version));
  facts.Number("api_version", version);
  facts.Code("cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&lowest, &highest));
  facts.Number("priority.lowest", lowest);
  facts.Is("priority.highest_is_not_above_lowest", highest <= lowest);
  facts.Code("cuCtxAttach", cuCtxAttach(&context, 0));
  facts.Code("cuCtxDetach", cuCtxDetach(context));
  facts.Code("usable_after_detach", AllocateAndFree());
  cuCtxDestroy_v2(context);
}

void Threads(Facts& facts, CUdevice device) {
  CUcontext context = nullptr;
  cuCtxCreate_v2(&context, 0, device);
  CUresult use = CUDA_SUCCESS;
  CUresult destroyed = CUDA_SUCCESS;
  bool empty_at_start = false;
  std::thread([&] {
    empty_at_start = Current() == nullptr;
    cuCtxSetCurrent(context);
    use = AllocateAndFree();
  }).join();
  facts.Is("thread.starts_without_context", empty_at_start);
  facts.Code("thread.shares_a_current_context", use);
  std::thread([&] { destroyed = cuCtxDestroy_v2(context); }).join();
  facts.Code("thread.destroys_what_is_current_elsewhere", destroyed);
  facts.Is("thread.destroyed_stays_current_here", Current() == context);
  facts.Code("thread.destroyed_here_allocate", AllocateAndFree());
  facts.Code("thread.destroyed_here_synchronize", cuCtxSynchronize());
  size_t bytes = 0;
  int priority = 0;
  facts.Code("thread.destroyed_here_info", cuMemGetInfo_v2(&bytes, &bytes));
  facts.Code("thread.destroyed_here_priorities", cuCtxGetStreamPriorityRange(&priority, &priority));
  CUcontext popped = nullptr;
  facts.Code("thread.destroyed_here_pop", cuCtxPopCurrent_v2(&popped));
}

void Footprints(Facts& facts, CUdevice device) {
  CUcontext primary = UsePrimary(device);
  const size_t before = FreeBytes();
  CUcontext extra = nullptr;
  cuCtxCreate_v2(&extra, 0, device);
  facts.Is("footprint.further_context_costs", DroppedSince(before) > 0);
  facts.Measured("footprint.further_context_bytes", DroppedSince(before));
  CUdeviceptr memory = 0;
  cuMemAlloc_v2(&memory, 64 * kMib);
  cuCtxDestroy_v2(extra);
  cuCtxSetCurrent(primary);
  facts.Number("footprint.left_after_destroy_with_memory", DroppedSince(before));
  facts.Code("memory_of_destroyed_context_is_gone", cuMemFree_v2(memory));

  cuCtxCreate_v2(&extra, 0, device);
  cuMemAlloc_v2(&memory, kMib);
  cuCtxSetCurrent(primary);
  facts.Code("free_under_another_context", cuMemFree_v2(memory));
  cuCtxDestroy_v2(extra);
  cuDevicePrimaryCtxRelease_v2(device);
}

// The 32-bit forms want a context that cuCtxCreate made, and what works beside them there.
void FirstVersion(Facts& facts, CUdevice device) {
  CUcontext context = nullptr;
  unsigned version = 77;
  facts.Code("first.create", cuCtxCreate(&context, 0, device));
  facts.Code("first.ask_version", cuCtxGetApiVersion(context, &version));
  facts.Number("first.version", version);
  CUdeviceptr_v1 low = 0;
  CUdeviceptr memory = 0;
  unsigned low_pitch = 0;
  size_t pitch = 0;
  unsigned low_free = 0;
  unsigned low_total = 0;
  size_t free = 0;
  size_t total = 0;
  facts.Code("first.alloc_v1", cuMemAlloc(&low, kMib));
  facts.Code("first.free_v1", cuMemFree(low));
  facts.Code("first.pitch_v1", cuMemAllocPitch(&low, &low_pitch, 1000, 16, 4));
  facts.Code("first.free_pitch_v1", cuMemFree(low));
  facts.Code("first.info_v1", cuMemGetInfo(&low_free, &low_total));
  facts.Code("first.alloc_v2", cuMemAlloc_v2(&memory, kMib));
  facts.Code("first.pitch_v2", cuMemAllocPitch_v2(&memory, &pitch, 1000, 16, 4));
  facts.Code("first.managed", cuMemAllocManaged(&memory, kMib, CU_MEM_ATTACH_GLOBAL));
  facts.Code("first.info_v2", cuMemGetInfo_v2(&free, &total));
  CUstream stream = nullptr;
  facts.Code("first.stream", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  memory = 0;
  facts.Code("first.alloc_async", cuMemAllocAsync(&memory, kMib, stream));
  facts.Code("first.free_async", cuMemFreeAsync(memory, stream));
  facts.Code("first.synchronize", cuStreamSynchronize(stream));
  CUmodule module = nullptr;
  facts.Code("first.module", cuModuleLoadData(&module, kKernels));
  facts.Code("first.destroy", cuCtxDestroy_v2(context));
}

// What a driver does with a handle of the past may be a crash: asked in a process of its own.
int DestroyTwice() {
  CUcontext context = nullptr;
  cuInit(0);
  cuCtxCreate_v2(&context, 0, 0);
  cuCtxDestroy_v2(context);
  Tell(Name(cuCtxDestroy_v2(context)));
  return 0;
}

}  // namespace
}  // namespace conformance

int main(int argc, char**) {
  using namespace conformance;
  if (argc > 1) return DestroyTwice();
  Facts facts("contexts");
  const CUdevice device = FirstDevice(facts);
  PrimaryUnretained(facts, device);
  PrimaryCounts(facts, device);
  PrimaryEndsAtWork(facts, device);
  Stack(facts, device);
  Creating(facts, device);
  Threads(facts, device);
  Footprints(facts, device);
  FirstVersion(facts, device);
  // Which of two codes the driver gives depends on what lies at the old address by then.
  const std::string twice = Ask({"destroy-twice"});
  facts.Is("destroy.twice_is_refused",
           twice == "INVALID_CONTEXT" || twice == "CONTEXT_IS_DESTROYED");
  return 0;
}
