// Device memory that goes to other processes by the handles of cuIpcGetMemHandle. Its owner pays;
// opening counts as an import. Must not know physical handles (vmm.cpp) or pools.
#include "hooks/memory/piece_reservation.h"
#include "hooks/sharing/shared_memory.h"
#include "real.h"

namespace gpufence {
namespace {

template <typename Call>
CUresult Open(CUdeviceptr* address, Call call) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || address == nullptr) return call();
  Fence* fence = hook.fence();
  Importing importing(fence);
  const CUresult rc = call();
  if (rc != CUDA_SUCCESS) return rc;
  importing.Keep(device);
  // Opened again, it is at the same address, and closed as often.
  Holding known;
  if (fence->holdings.AddReference(HoldingKind::kAddress, *address, 1, &known) > 0) return rc;
  fence->holdings.Put({.key = *address,
                       .context = hook.context(),
                       .count = 1,
                       .device = device->account.device(),
                       .kind = HoldingKind::kAddress,
                       .family = Family::kImport});
  return rc;
}

}  // namespace
}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  const Hook hook;
  const CUresult rc = real::cuIpcGetMemHandle(pHandle, dptr);
  if (hook.fence() == nullptr) return rc;
  if (rc != CUDA_SUCCESS) {
    SayIfOnHost(hook.fence(), dptr, "cuIpcGetMemHandle");
    return rc;
  }
  // The handle leads to the whole allocation, whatever address in it was given.
  CUdeviceptr base = 0;
  Holding holding;
  if (real::cuMemGetAddressRange_v2(&base, nullptr, dptr) == CUDA_SUCCESS &&
      GetAddress(hook.fence(), base, &holding)) {
    MarkExported(hook.fence(), holding);
  }
  return rc;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return Open(pdptr, [&] { return real::cuIpcOpenMemHandle(pdptr, handle, Flags); });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return Open(pdptr, [&] { return real::cuIpcOpenMemHandle_v2(pdptr, handle, Flags); });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  const Hook hook;
  Fence* fence = hook.fence();
  Holding import;
  const bool known = fence != nullptr &&
                     fence->holdings.AddReference(HoldingKind::kAddress, dptr, -1, &import) >= 0;
  const CUresult rc = real::cuIpcCloseMemHandle(dptr);
  if (!known) return rc;
  if (rc == CUDA_SUCCESS) {
    EndImports(&fence->devices[import.device], 1);
    ReadOwnImports(&fence->devices[import.device]);
  } else if (fence->holdings.AddReference(HoldingKind::kAddress, dptr, 1, &import) < 0) {
    import.count = 1;
    fence->holdings.Put(import);
  }
  return rc;
}

}  // extern "C"
