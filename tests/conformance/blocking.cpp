// link: cuda
// flags: -Wl,-z,lazy
// Facts: which calls keep their caller until the GPU's work is done, and which return at once.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

// A call that outlasts the short kernel is asked again with the long one: being slow, or held up by
// a loaded machine, is not waiting.
constexpr unsigned long long kShortSpinNs = 60'000'000;
constexpr unsigned long long kLongSpinNs = 500'000'000;

using Action = std::function<void()>;

class Watcher {
 public:
  Watcher(Facts& facts, const Kernels& kernels, const std::string& where, CUstream stream)
      : facts_(facts), kernels_(kernels), where_(where), stream_(stream) {}

  // Makes the call while a kernel runs and says whether the kernel was over when it returned.
  // `prepare` runs before, `finish` after, both with the GPU idle; together they undo the call.
  void Try(
      const char* name, const std::function<CUresult()>& call, const Action& prepare = [] {},
      const Action& finish = [] {}) {
    CUresult code = CUDA_SUCCESS;
    const auto outlasts = [&](unsigned long long spin_ns) {
      prepare();
      cuCtxSynchronize();
      Event end;
      LaunchSpin(kernels_, stream_, spin_ns);
      cuEventRecord(end.get(), stream_);
      code = call();
      const bool waited = end.done();
      cuCtxSynchronize();
      finish();
      return waited;
    };
    facts_.Is(where_ + name, outlasts(kShortSpinNs) && outlasts(kLongSpinNs));
    if (code != CUDA_SUCCESS) facts_.Code(where_ + name + ".code", code);
  }

 private:
  Facts& facts_;
  const Kernels& kernels_;
  std::string where_;
  CUstream stream_;
};

struct Things {
  CUdeviceptr memory = 0;
  CUdeviceptr extra = 0;
  void* pinned = nullptr;
  std::vector<unsigned char> pageable = std::vector<unsigned char>(8 * kMib);
};

void LinearMemory(Watcher& watch, Things& things) {
  const auto make = [&] { cuMemAlloc_v2(&things.extra, 4 * kMib); };
  const auto drop = [&] { cuMemFree_v2(things.extra); };
  watch.Try("cuMemAlloc", [&] { return cuMemAlloc_v2(&things.extra, 4 * kMib); }, [] {}, drop);
  watch.Try("cuMemFree", [&] { return cuMemFree_v2(things.extra); }, make);
  size_t bytes = 0;
  watch.Try("cuMemGetInfo", [&] { return cuMemGetInfo_v2(&bytes, &bytes); });
  watch.Try(
      "cuMemAllocManaged",
      [&] { return cuMemAllocManaged(&things.extra, kMib, CU_MEM_ATTACH_GLOBAL); }, [] {}, drop);
  watch.Try(
      "cuMemFree of managed", [&] { return cuMemFree_v2(things.extra); },
      [&] { cuMemAllocManaged(&things.extra, kMib, CU_MEM_ATTACH_GLOBAL); });
  void* host = nullptr;
  watch.Try(
      "cuMemHostAlloc", [&] { return cuMemHostAlloc(&host, kMib, 0); }, [] {},
      [&] { cuMemFreeHost(host); });
  watch.Try(
      "cuMemFreeHost", [&] { return cuMemFreeHost(host); },
      [&] { cuMemHostAlloc(&host, kMib, 0); });
  watch.Try(
      "cuMemHostRegister", [&] { return cuMemHostRegister_v2(things.pageable.data(), kMib, 0); },
      [] {}, [&] { cuMemHostUnregister(things.pageable.data()); });
  watch.Try(
      "cuMemHostUnregister", [&] { return cuMemHostUnregister(things.pageable.data()); },
      [&] { cuMemHostRegister_v2(things.pageable.data(), kMib, 0); });
}

void Copies(Watcher& watch, Things& things, CUstream other) {
  unsigned char* pageable = things.pageable.data();
  watch.Try("cuMemcpyHtoD small pageable",
            [&] { return cuMemcpyHtoD_v2(things.memory, pageable, 64); });
  watch.Try("cuMemcpyHtoD large pageable",
            [&] { return cuMemcpyHtoD_v2(things.memory, pageable, 4 * kMib); });
  watch.Try("cuMemcpyHtoD pinned",
            [&] { return cuMemcpyHtoD_v2(things.memory, things.pinned, kMib); });
  watch.Try("cuMemcpyDtoH", [&] { return cuMemcpyDtoH_v2(pageable, things.memory, 64); });
  watch.Try("cuMemcpyDtoD",
            [&] { return cuMemcpyDtoD_v2(things.memory, things.memory + 4 * kMib, kMib); });
  watch.Try("cuMemsetD8", [&] { return cuMemsetD8_v2(things.memory, 0, kMib); });
  watch.Try("cuMemcpyHtoDAsync small pageable elsewhere",
            [&] { return cuMemcpyHtoDAsync_v2(things.memory, pageable, 64, other); });
  watch.Try("cuMemcpyHtoDAsync pinned elsewhere",
            [&] { return cuMemcpyHtoDAsync_v2(things.memory, things.pinned, kMib, other); });
  watch.Try("cuMemcpyDtoHAsync pageable elsewhere",
            [&] { return cuMemcpyDtoHAsync_v2(pageable, things.memory, kMib, other); });
  watch.Try("cuMemcpyDtoHAsync pinned elsewhere",
            [&] { return cuMemcpyDtoHAsync_v2(things.pinned, things.memory, kMib, other); });
  watch.Try("cuMemsetD8Async elsewhere",
            [&] { return cuMemsetD8Async(things.memory, 0, kMib, other); });
}

void Waiting(Watcher& watch, const Kernels& kernels, CUstream busy, CUstream other) {
  watch.Try("cuCtxSynchronize", [] { return cuCtxSynchronize(); });
  watch.Try("cuStreamSynchronize of it", [&] { return cuStreamSynchronize(busy); });
  watch.Try("cuStreamSynchronize elsewhere", [&] { return cuStreamSynchronize(other); });
  watch.Try("cuStreamSynchronize of null", [&] { return cuStreamSynchronize(nullptr); });
  watch.Try("cuLaunchKernel elsewhere", [&] { return LaunchEmpty(kernels, other); });
  watch.Try("cuLaunchKernel on it", [&] { return LaunchEmpty(kernels, busy); });
  CUstream stream = nullptr;
  watch.Try(
      "cuStreamCreate", [&] { return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); }, [] {},
      [&] { cuStreamDestroy_v2(stream); });
  watch.Try(
      "cuStreamDestroy of another", [&] { return cuStreamDestroy_v2(stream); },
      [&] { cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); });
  CUevent event = nullptr;
  watch.Try(
      "cuEventDestroy", [&] { return cuEventDestroy_v2(event); },
      [&] {
        cuEventCreate(&event, CU_EVENT_DEFAULT);
        cuEventRecord(event, other);
      });
  CUmodule module = nullptr;
  watch.Try(
      "cuModuleLoadData", [&] { return cuModuleLoadData(&module, kKernels); }, [] {},
      [&] { cuModuleUnload(module); });
  watch.Try(
      "cuModuleUnload", [&] { return cuModuleUnload(module); },
      [&] { cuModuleLoadData(&module, kKernels); });
}

void StreamOrdered(Watcher& watch, Things& things, CUstream other) {
  const auto make = [&] {
    cuMemAllocAsync(&things.extra, 4 * kMib, other);
    cuStreamSynchronize(other);
  };
  watch.Try(
      "cuMemAllocAsync elsewhere", [&] { return cuMemAllocAsync(&things.extra, 4 * kMib, other); },
      [] {}, [&] { cuMemFreeAsync(things.extra, other); });
  watch.Try("cuMemFreeAsync elsewhere", [&] { return cuMemFreeAsync(things.extra, other); }, make);
  watch.Try("cuMemFree of stream-ordered", [&] { return cuMemFree_v2(things.extra); }, make);
  CUmemoryPool pool = nullptr;
  cuDeviceGetDefaultMemPool(&pool, 0);
  watch.Try("cuMemPoolTrimTo", [&] { return cuMemPoolTrimTo(pool, 0); });
}

void Vmm(Watcher& watch) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  const size_t bytes = 2 * kMib;
  cuMemAddressReserve(&range, bytes, 0, 0, 0);
  const auto create = [&] { return cuMemCreate(&handle, bytes, &prop, 0); };
  const auto release = [&] { return cuMemRelease(handle); };
  const auto map = [&] { return cuMemMap(range, bytes, 0, handle, 0); };
  const auto unmap = [&] { return cuMemUnmap(range, bytes); };
  const auto allow = [&] { return cuMemSetAccess(range, bytes, &access, 1); };
  const auto end = [&] { unmap(), release(); };
  watch.Try("cuMemCreate", create, [] {}, release);
  watch.Try("cuMemMap", map, create, end);
  watch.Try("cuMemSetAccess", allow, [&] { create(), map(); }, end);
  watch.Try("cuMemUnmap", unmap, [&] { create(), map(), allow(); }, release);
  watch.Try("cuMemRelease", release, create);
  cuMemAddressFree(range, bytes);
}

void Arrays(Watcher& watch) {
  CUDA_ARRAY_DESCRIPTOR wanted{};
  wanted.Width = 256;
  wanted.Height = 256;
  wanted.Format = CU_AD_FORMAT_FLOAT;
  wanted.NumChannels = 1;
  CUarray array = nullptr;
  const auto create = [&] { return cuArrayCreate_v2(&array, &wanted); };
  const auto destroy = [&] { return cuArrayDestroy(array); };
  watch.Try("cuArrayCreate", create, [] {}, destroy);
  watch.Try("cuArrayDestroy", destroy, create);
}

void Contexts(Watcher& watch, CUdevice device, CUcontext primary) {
  CUcontext extra = nullptr;
  const auto create = [&] {
    const CUresult code = cuCtxCreate_v2(&extra, 0, device);
    cuCtxSetCurrent(primary);
    return code;
  };
  const auto destroy = [&] { return cuCtxDestroy_v2(extra); };
  watch.Try("cuCtxCreate and back", create, [] {}, destroy);
  watch.Try("cuCtxDestroy of another", destroy, create);
  watch.Try("cuDeviceGetCount", [] {
    int count = 0;
    return cuDeviceGetCount(&count);
  });
  for (const auto& [name, limit] : {std::pair{"printf heap", CU_LIMIT_PRINTF_FIFO_SIZE},
                                    std::pair{"stack", CU_LIMIT_STACK_SIZE}}) {
    size_t bytes = 0;
    cuCtxGetLimit(&bytes, limit);
    watch.Try((std::string("cuCtxSetLimit ") + name).c_str(),
              [&] { return cuCtxSetLimit(limit, 2 * bytes); }, [] {},
              [&] { cuCtxSetLimit(limit, bytes); });
  }
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("blocking");
  const CUdevice device = FirstDevice(facts);
  const CUcontext primary = UsePrimary(device);
  const Kernels kernels = LoadKernels();
  LaunchSpin(kernels, nullptr, 1000);
  LaunchEmpty(kernels, nullptr);
  Things things;
  cuMemAlloc_v2(&things.memory, 8 * kMib);
  cuMemHostAlloc(&things.pinned, kMib, 0);
  cuMemsetD8_v2(things.memory, 0, 16);
  cuMemcpyDtoD_v2(things.memory, things.memory + kMib, 16);
  cuCtxSynchronize();
  Stream other;
  Stream busy;
  {
    Watcher watch(facts, kernels, "non_blocking_busy.", busy.get());
    LinearMemory(watch, things);
    Copies(watch, things, other.get());
    Waiting(watch, kernels, busy.get(), other.get());
    StreamOrdered(watch, things, other.get());
    Vmm(watch);
    Arrays(watch);
    Contexts(watch, device, primary);
  }
  {
    Watcher watch(facts, kernels, "legacy_busy.", nullptr);
    LinearMemory(watch, things);
    Copies(watch, things, other.get());
  }
  return 0;
}
