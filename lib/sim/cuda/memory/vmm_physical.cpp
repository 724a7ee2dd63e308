// Physical memory without an address: cuMemCreate, cuMemRelease and what is asked of handles.
//
// Must not know where handles are mapped (vmm_map.cpp).
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/vmm.h"
#include "cuda/memory/vmm_state.h"
#include "cuda/sharing/dma_buf.h"
#include "machine/calls.h"

namespace sim::vmm {
namespace {

constinit Table<Physical, Kind::kPhysical> g_physical;

void GiveMemory(const Physical& physical) {
  if (physical.shared.fd >= 0) {
    machine::SharedHold hold = physical.shared;
    machine::LetGo(&hold);
    return;
  }
  dma_buf::Leave(physical.offset);
  arena::Give(physical.offset, physical.bytes);
  memory::ReleaseHidden(physical.device, physical.charged_bytes);
}

void EndIfUnused(Physical* physical) {
  if (physical->references > 0 || physical->mappings > 0) return;
  GiveMemory(*physical);
  g_physical.Destroy(physical->handle);
}

void UseShared(Physical* physical, const machine::SharedHold& hold) {
  physical->shared = hold;
  physical->fd = hold.fd;
  physical->offset = hold.offset;
  physical->bytes = hold.bytes;
}

// Bytes for a handle: a part of the arena, or memory that another process may get.
bool TakeMemory(Physical* physical, int device) {
  if (physical->prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    if (!arena::Take(physical->bytes, &physical->offset)) return false;
    physical->fd = arena::Descriptor();
    return true;
  }
  machine::SharedHold hold;
  const int physical_device = device >= 0 ? device::Physical(device) : -1;
  if (!machine::MakeShared(physical_device, physical->bytes, &hold)) return false;
  UseShared(physical, hold);
  return true;
}

CUresult CreateMemory(CUmemGenericAllocationHandle* handle, size_t bytes,
                      const CUmemAllocationProp& prop, int device) {
  Physical* physical = Create();
  if (physical == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t charged_bytes = device >= 0 ? bytes : 0;
  physical->prop = prop;
  physical->device = device;
  physical->bytes = bytes;
  if (charged_bytes > 0 && !memory::ChargeHidden(device, charged_bytes)) {
    g_physical.Destroy(physical->handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!TakeMemory(physical, device)) {
    memory::ReleaseHidden(device, charged_bytes);
    g_physical.Destroy(physical->handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->charged_bytes = charged_bytes;
  *handle = physical->handle;
  return CUDA_SUCCESS;
}

}  // namespace

Physical* Find(CUmemGenericAllocationHandle handle) {
  Physical* physical = g_physical.Find(static_cast<uint64_t>(handle));
  return physical != nullptr && physical->references > 0 ? physical : nullptr;
}

const Physical* Behind(const memory::Range& range) { return g_physical.Find(range.detail); }

Physical* Create() {
  uint64_t handle = 0;
  Physical* physical = g_physical.Create(&handle);
  if (physical == nullptr) return nullptr;
  physical->handle = handle;
  physical->references = 1;
  physical->shared = {};
  return physical;
}

void Release(Physical* physical) {
  --physical->references;
  EndIfUnused(physical);
}

bool AddMapping(uint64_t handle) {
  Physical* physical = Find(handle);
  if (physical != nullptr) ++physical->mappings;
  return physical != nullptr;
}

void DropMapping(uint64_t handle) {
  Physical* physical = g_physical.Find(handle);
  if (physical == nullptr) return;
  --physical->mappings;
  EndIfUnused(physical);
}

CUresult ResolveProp(const CUmemAllocationProp* prop, int* device) {
  constexpr unsigned kShareable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((prop->requestedHandleTypes & ~kShareable) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return device::ResolveAllocation(prop->location, device);
}

}  // namespace sim::vmm

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  SIM_CALL(cuMemGetAllocationGranularity, granularity, prop, option);
  if (granularity == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = sim::vmm::kGranularity;  // of any device and type, as the driver answers
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  SIM_CALL(cuMemCreate, handle, size, prop, flags);
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  int device = 0;
  const CUresult rc = sim::vmm::ResolveProp(prop, &device);
  if (rc != CUDA_SUCCESS) return rc;
  if (size == 0 || size % sim::vmm::kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  sim::DriverLock lock;
  return sim::vmm::CreateMemory(handle, size, *prop, device);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIM_CALL(cuMemRelease, handle);
  sim::DriverLock lock;
  sim::vmm::Physical* physical = sim::vmm::Find(handle);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  sim::vmm::Release(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  SIM_CALL(cuMemGetAllocationPropertiesFromHandle, prop, handle);
  sim::DriverLock lock;
  const sim::vmm::Physical* physical = sim::vmm::Find(handle);
  if (prop == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->prop;
  return CUDA_SUCCESS;
}

// Finds the handle by any address that it is mapped to, even after its last cuMemRelease.
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  SIM_CALL(cuMemRetainAllocationHandle, handle, addr);
  sim::DriverLock lock;
  const sim::memory::Range* range =
      sim::memory::FindRange(static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(addr)));
  if (handle == nullptr || range == nullptr || range->family != sim::memory::Family::kMapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::vmm::Physical* physical = sim::vmm::g_physical.Find(range->detail);
  ++physical->references;
  *handle = physical->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  SIM_CALL(cuMemExportToShareableHandle, shareableHandle, handle, handleType, flags);
  sim::DriverLock lock;
  const sim::vmm::Physical* physical = sim::vmm::Find(handle);
  if (shareableHandle == nullptr || flags != 0 || physical == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((physical->prop.requestedHandleTypes & handleType) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (physical->is_imported) return CUDA_ERROR_INVALID_VALUE;  // as an H200 does
  int fd = -1;
  if (!sim::machine::HoldAgain(physical->shared, &fd)) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareableHandle) = fd;
  return CUDA_SUCCESS;
}

// The exporter goes on paying; the importer keeps the bytes alive.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  SIM_CALL(cuMemImportFromShareableHandle, handle, osHandle, shHandleType);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int given_fd = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  sim::DriverLock lock;
  sim::machine::SharedHold hold;
  if (!sim::machine::HoldForeign(given_fd, &hold)) return CUDA_ERROR_UNKNOWN;
  sim::vmm::Physical* physical = sim::vmm::Create();
  if (physical == nullptr) {
    sim::machine::LetGo(&hold);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const bool on_device = hold.device >= 0;
  physical->device = on_device ? sim::device::Logical(hold.device) : -1;
  physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical->prop.location.type =
      on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
  physical->prop.location.id = on_device ? physical->device : 0;
  physical->is_imported = true;
  sim::vmm::UseShared(physical, hold);
  *handle = physical->handle;
  return CUDA_SUCCESS;
}

}  // extern "C"
