// What CUDA says about a device's memory: inside a limit, a device of that size.
// The driver answers first, so its checks and codes are the caller's; success is lowered.
#include "hooks/clock.h"
#include "hooks/fence.h"
#include "hooks/held.h"
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
CUresult MemGetInfo(Size* free_bytes, Size* total_bytes, InfoCall<Size> call) {
  const Hook hook;
  const CUresult rc = call(free_bytes, total_bytes);
  if (rc != CUDA_SUCCESS) return rc;
  FencedDevice* device = hook.answering_device();
  if (device == nullptr || free_bytes == nullptr || total_bytes == nullptr) return rc;
  if (!device->account.limited()) return rc;
  device->account.ReclaimAt(CoarseNowNs());
  const MemoryView view = ViewMemory(HeldOn(&device->account), *total_bytes, *free_bytes);
  *free_bytes = Fit<Size>(view.free_bytes);
  *total_bytes = Fit<Size>(view.total_bytes);
  return rc;
}

template <typename Size>
CUresult DeviceTotalMem(Size* bytes, CUdevice dev, TotalCall<Size> call) {
  const Hook hook;
  const CUresult rc = call(bytes, dev);
  if (rc != CUDA_SUCCESS || bytes == nullptr || hook.fence() == nullptr) return rc;
  FencedDevice* device = FencedOrdinal(hook.fence(), static_cast<uint32_t>(dev));
  if (device == nullptr) return rc;
  *bytes = Fit<Size>(ViewMemory(HeldOn(&device->account), *bytes, *bytes).total_bytes);
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
