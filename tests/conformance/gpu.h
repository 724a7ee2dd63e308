// What most conformance programs need before they can ask their questions: a context on the first
// GPU, kernels with a known duration, free memory, and what a timeline looks like from outside.
// Must not know how facts are judged.

#pragma once

#include <time.h>

#include <cstdlib>

#include "facts.h"

namespace conformance {

inline constexpr size_t kKib = size_t{1} << 10;
inline constexpr size_t kMib = size_t{1} << 20;
inline constexpr int kSkipped = 77;  // exit status: there is no GPU to ask

// What outputs hold before a call that must not write them.
inline constexpr CUdeviceptr kPoison = 0xabababababab;

inline constexpr char kKernels[] =
#include "support/spin_kernel.h"
    R"(
.visible .entry gpufence_empty()
{
    ret;
}

.visible .global .align 4 .b8 gpufence_global[4096];

.visible .entry gpufence_vector_add(.param .u64 a, .param .u64 b, .param .u64 out,
                                    .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r3, %r2, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    cvta.to.global.u64 %rd6, %rd3;
    mul.wide.u32 %rd7, %r5, 4;
    add.u64 %rd8, %rd4, %rd7;
    add.u64 %rd9, %rd5, %rd7;
    add.u64 %rd10, %rd6, %rd7;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd9];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd10], %f3;
done:
    ret;
}
)";

// What a refused call has left in an output that held kPoison.
inline const char* Left(CUdeviceptr output) {
  if (output == kPoison) return "untouched";
  return output == 0 ? "null" : "written";
}
inline const char* Left(const void* output) { return Left(reinterpret_cast<CUdeviceptr>(output)); }

inline long long NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// cuInit and the first device.  Ends the program as skipped when there is none.
inline CUdevice FirstDevice(Facts& facts) {
  const CUresult init = cuInit(0);
  CUdevice device = 0;
  if (init != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
    facts.Code("cuInit", init);
    std::printf("\n}\n");
    std::exit(kSkipped);
  }
  return device;
}

// The primary context of the first device, current on this thread, for the program's whole life.
inline CUcontext UsePrimary(CUdevice device) {
  CUcontext context = nullptr;
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  return context;
}

inline size_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cuMemGetInfo_v2(&free_bytes, &total_bytes);
  return free_bytes;
}

inline size_t TotalBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cuMemGetInfo_v2(&free_bytes, &total_bytes);
  return total_bytes;
}

// How much less is free than `before`; negative when there is more.
inline long long DroppedSince(size_t before) {
  return static_cast<long long>(before) - static_cast<long long>(FreeBytes());
}

struct Kernels {
  CUmodule module = nullptr;
  CUfunction empty = nullptr;
  CUfunction spin = nullptr;
  CUfunction vector_add = nullptr;
};

inline Kernels LoadKernels() {
  Kernels kernels;
  if (cuModuleLoadData(&kernels.module, kKernels) != CUDA_SUCCESS) return kernels;
  cuModuleGetFunction(&kernels.empty, kernels.module, "gpufence_empty");
  cuModuleGetFunction(&kernels.spin, kernels.module, "gpufence_spin_ns");
  cuModuleGetFunction(&kernels.vector_add, kernels.module, "gpufence_vector_add");
  return kernels;
}

inline CUresult LaunchSpin(const Kernels& kernels, CUstream stream, unsigned long long spin_ns) {
  void* params[] = {&spin_ns};
  return cuLaunchKernel(kernels.spin, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

inline CUresult LaunchEmpty(const Kernels& kernels, CUstream stream) {
  return cuLaunchKernel(kernels.empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}

// An event that ends with its scope.
class Event {
 public:
  explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING) { cuEventCreate(&event_, flags); }
  ~Event() { cuEventDestroy_v2(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent get() const { return event_; }
  bool done() const { return cuEventQuery(event_) == CUDA_SUCCESS; }

 private:
  CUevent event_ = nullptr;
};

// A stream that ends with its scope.
class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) { cuStreamCreate(&stream_, flags); }
  ~Stream() { cuStreamDestroy_v2(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

}  // namespace conformance
