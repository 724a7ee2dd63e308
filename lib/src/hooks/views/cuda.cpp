// What CUDA says about a device's memory: inside a limit, a device of that size.
// The driver's checks and codes are the caller's; success is lowered.
#include "base/futex.h"
#include "hooks/fence.h"
#include "hooks/views/onlooker.h"
#include "policy/view.h"
#include "real.h"

namespace gpufence {
namespace {

template <typename Size>
using InfoCall = CUresult (*)(Size*, Size*);
template <typename Size>
using TotalCall = CUresult (*)(Size*, CUdevice);

// The driver's numbers grow only where memory is oversold, and then perhaps beyond the 32-bit form.
template <typename Size>
Size Fit(uint64_t bytes) {
  constexpr Size kMost = static_cast<Size>(-1);
  return bytes < kMost ? static_cast<Size>(bytes) : kMost;
}

template <typename Size>
CUresult Show(const MemoryView& view, Size* free_bytes, Size* total_bytes) {
  *free_bytes = Fit<Size>(view.free_bytes);
  *total_bytes = Fit<Size>(view.total_bytes);
  return CUDA_SUCCESS;
}

// Fails as cuMemGetInfo does, without asking the kernel: uninitialised, no context, one that was
// destroyed or that a kernel's fault ended. Driver 580 agreed in all of them; neither call notices
// a fault before somebody waited for it. Allowed in captures.
bool WouldAnswer() {
  int least = 0;
  int greatest = 0;
  return real::cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS;
}

// The driver's figure matters only where it is the lower one. False: it may be.
bool LimitAnswers(FencedDevice* device, uint64_t now_ns, MemoryView* view) {
  *view = ViewMemory(LimitAndUseOf(&device->account), device->total_bytes, device->total_bytes);
  return device->free_reading.LeavesMoreThan(view->free_bytes, now_ns) && WouldAnswer();
}

template <typename Size>
CUresult MemGetInfo(Size* free_bytes, Size* total_bytes, InfoCall<Size> call) {
  const Hook hook;
  FencedDevice* device = hook.answering_device();
  if (device == nullptr || free_bytes == nullptr || total_bytes == nullptr ||
      !device->account.limited()) {
    return call(free_bytes, total_bytes);
  }
  const uint64_t now_ns = NowNs();
  device->account.RefreshAt(now_ns);
  MemoryView view;
  // The 32-bit form has checks of its own.
  if (sizeof(Size) == sizeof(size_t) && LimitAnswers(device, now_ns, &view)) {
    return Show(view, free_bytes, total_bytes);
  }
  const CUresult rc = call(free_bytes, total_bytes);
  if (rc != CUDA_SUCCESS) return rc;
  if (sizeof(Size) == sizeof(size_t)) device->free_reading.Keep(*free_bytes, now_ns);
  view = ViewMemory(LimitAndUseOf(&device->account), *total_bytes, *free_bytes);
  return Show(view, free_bytes, total_bytes);
}

template <typename Size>
CUresult DeviceTotalMem(Size* bytes, CUdevice dev, TotalCall<Size> call) {
  const Hook hook;
  const CUresult rc = call(bytes, dev);
  if (rc != CUDA_SUCCESS || bytes == nullptr || hook.fence() == nullptr) return rc;
  FencedDevice* device = FencedOrdinal(hook.fence(), static_cast<uint32_t>(dev));
  if (device == nullptr) return rc;
  *bytes = Fit<Size>(ViewMemory(LimitAndUseOf(&device->account), *bytes, *bytes).total_bytes);
  return rc;
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  return gpufence::MemGetInfo(free, total, real::cuMemGetInfo);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return gpufence::MemGetInfo(free, total, real::cuMemGetInfo_v2);
}

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  return gpufence::DeviceTotalMem(bytes, dev, real::cuDeviceTotalMem);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return gpufence::DeviceTotalMem(bytes, dev, real::cuDeviceTotalMem_v2);
}

}  // extern "C"
