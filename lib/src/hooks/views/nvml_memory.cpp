// What NVML says about a device's memory: inside a limit, a device of that size.
//
// NVML answers first, so its checks (the version in the caller's struct among them) and codes are
// the caller's. It answers some of these through others of its own exports: adjusted at the
// outermost only.
#include "hooks/fence.h"
#include "hooks/views/onlooker.h"
#include "policy/view.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Exchanges total, free and used. The first form of the query has no word for what is reserved and
// counts it as used; inside a limit, used is the container's own in every form.
template <typename Memory>
bool ShowLimit(nvmlDevice_t device, Memory* memory, MemoryView* view) {
  Held seen;
  if (!LookAt(device, &seen)) return false;
  *view = ViewMemory(seen, memory->total, memory->free);
  memory->total = view->total_bytes;
  memory->used = view->used_bytes;
  memory->free = view->free_bytes;
  return true;
}

using AttributesCall = nvmlReturn_t (*)(nvmlDevice_t, nvmlDeviceAttributes_t*);

nvmlReturn_t GetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes,
                           AttributesCall call) {
  const InsideHook hook;
  const nvmlReturn_t rc = call(device, attributes);
  Held seen;
  if (rc != NVML_SUCCESS || !hook.is_outermost() || !LookAt(device, &seen)) return rc;
  const uint64_t total_bytes = attributes->memorySizeMB * kMiB;
  attributes->memorySizeMB = ViewMemory(seen, total_bytes, total_bytes).total_bytes / kMiB;
  return rc;
}

}  // namespace
}  // namespace gpufence

using gpufence::InsideHook;
using gpufence::MemoryView;

extern "C" {

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetMemoryInfo(device, memory);
  MemoryView view;
  if (rc == NVML_SUCCESS && hook.is_outermost()) gpufence::ShowLimit(device, memory, &view);
  return rc;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetMemoryInfo_v2(device, memory);
  MemoryView view;
  if (rc == NVML_SUCCESS && hook.is_outermost() && gpufence::ShowLimit(device, memory, &view)) {
    memory->reserved = view.reserved_bytes;
  }
  return rc;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t* memory) {
  const InsideHook hook;
  const nvmlReturn_t rc = real::nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory);
  MemoryView view;
  // A board without protected memory answers zeros, which stay zeros.
  if (rc == NVML_SUCCESS && hook.is_outermost()) gpufence::ShowLimit(device, memory, &view);
  return rc;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return gpufence::GetAttributes(device, attributes, real::nvmlDeviceGetAttributes);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return gpufence::GetAttributes(device, attributes, real::nvmlDeviceGetAttributes_v2);
}

}  // extern "C"
