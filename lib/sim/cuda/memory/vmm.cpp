// Physical memory without an address: cuMemCreate, cuMemRelease and what is asked of handles; and
// addresses for it: reserving, mapping, access.
#include "cuda/memory/vmm.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/ranges.h"
#include "cuda/sharing/sharing.h"
#include "machine/calls.h"
#include "machine/vec.h"

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

namespace sim::vmm {
namespace {

using memory::Family;
using memory::Range;

struct Reservation {
  uintptr_t base;
  size_t bytes;
};

constinit Vec<Reservation> g_reservations = {};

Reservation* ReservationOf(uintptr_t address) {
  for (Reservation& reservation : g_reservations) {
    if (address - reservation.base < reservation.bytes) return &reservation;
  }
  return nullptr;
}

bool IsAligned(uint64_t value) { return value % kGranularity == 0; }

CUresult Reserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wish) {
  if (bytes == 0 || !IsAligned(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!g_reservations.Reserve(g_reservations.size() + 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uintptr_t base = arena::ReserveAddresses(bytes, std::max<size_t>(alignment, kGranularity),
                                                 IsAligned(wish) ? wish : 0);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  g_reservations.Push({base, bytes});
  *address = base;
  return CUDA_SUCCESS;
}

// A reservation goes as a whole, and only without mappings in it.
CUresult FreeReservation(CUdeviceptr address, size_t bytes) {
  for (size_t index = 0; index < g_reservations.size(); ++index) {
    const Reservation reservation = g_reservations[index];
    if (reservation.base != address) continue;
    if (reservation.bytes != bytes || ranges::Overlaps(address, bytes)) break;
    arena::Unmap(reservation.base, reservation.bytes);
    g_reservations.Erase(index);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Map(CUdeviceptr address, size_t bytes, size_t offset, Physical* physical) {
  const Reservation* reservation = ReservationOf(address);
  if (reservation == nullptr || bytes > reservation->bytes - (address - reservation->base) ||
      ranges::Overlaps(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset != 0 || bytes != physical->bytes) return CUDA_ERROR_NOT_SUPPORTED;  // only as a whole
  Range range = {};
  range.base = address;
  range.bytes = bytes;
  range.family = Family::kMapped;
  range.accessible = false;  // until cuMemSetAccess
  range.device = physical->device;
  range.arena_offset = physical->offset;
  range.detail = physical->handle;
  Range* added = ranges::Add(range);
  if (added == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (arena::MapFile(address, bytes, physical->fd, physical->offset) == 0) {
    ranges::Remove(added);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  AddMapping(physical->handle);
  return CUDA_SUCCESS;
}

// Calls visit(Range*) for the mappings that make up [address, address+bytes) exactly; false (none
// visited) when they do not.  `visit` may remove its range.
template <typename Visit>
bool ForMappings(CUdeviceptr address, size_t bytes, Visit visit) {
  uintptr_t at = address;
  const uintptr_t end = address + bytes;
  while (at < end) {
    const Range* range = memory::FindRange(at);
    if (range == nullptr || range->base != at || range->family != Family::kMapped ||
        range->bytes > end - at) {
      return false;
    }
    at += range->bytes;
  }
  for (at = address; at < end;) {
    Range* range = memory::FindRange(at);
    at += range->bytes;
    visit(range);
  }
  return true;
}

// Addresses without a mapping are left as they are; a mapping goes as a whole or not at all.
bool MayUnmap(uintptr_t address, size_t bytes) {
  const Reservation* reservation = ReservationOf(address);
  if (reservation == nullptr || bytes > reservation->bytes - (address - reservation->base)) {
    return false;
  }
  const Range* first = memory::FindRange(address);
  const Range* last = memory::FindRange(address + bytes - 1);
  return (first == nullptr || first->base == address) &&
         (last == nullptr || last->base + last->bytes == address + bytes);
}

CUresult Unmap(CUdeviceptr address, size_t bytes) {
  if (bytes == 0 || !IsAligned(address) || !IsAligned(bytes) || !MayUnmap(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  while (Range* range = ranges::FirstFrom(address)) {
    if (range->base - address >= bytes) break;
    const uint64_t handle = range->detail;
    arena::MakeBlank(range->base, range->bytes);
    ranges::Remove(range);
    DropMapping(handle);
  }
  return CUDA_SUCCESS;
}

// Access is kept per device (flags, one bit each for read and write) and as one answer.
unsigned AccessShift(int device) { return static_cast<unsigned>(device) * 2; }

void Allow(Range* range, const CUmemAccessDesc& access) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  const unsigned shift = AccessShift(access.location.id);
  range->flags = (range->flags & ~(3u << shift)) | static_cast<unsigned>(access.flags) << shift;
  range->accessible = range->flags != 0;
}

CUresult CheckAccess(const CUmemAccessDesc& access) {
  const CUmemAccess_flags flags = access.flags;
  if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (access.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return device::IsValid(access.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

bool IsReserved(uintptr_t address) { return ReservationOf(address) != nullptr; }

bool FindReservation(uintptr_t address, uintptr_t* base, size_t* bytes) {
  const Reservation* reservation = ReservationOf(address);
  if (reservation == nullptr) return false;
  *base = reservation->base;
  *bytes = reservation->bytes;
  return true;
}

}  // namespace sim::vmm

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  SIM_CALL(cuMemAddressReserve, ptr, size, alignment, addr, flags);
  if (ptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  sim::DriverLock lock;
  return sim::vmm::Reserve(ptr, size, alignment, addr);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  SIM_CALL(cuMemAddressFree, ptr, size);
  sim::DriverLock lock;
  return sim::vmm::FreeReservation(ptr, size);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  SIM_CALL(cuMemMap, ptr, size, offset, handle, flags);
  if (flags != 0 || size == 0 || !sim::vmm::IsAligned(ptr) || !sim::vmm::IsAligned(size) ||
      !sim::vmm::IsAligned(offset)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::DriverLock lock;
  sim::vmm::Physical* physical = sim::vmm::Find(handle);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::vmm::Map(ptr, size, offset, physical);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  SIM_CALL(cuMemUnmap, ptr, size);
  sim::DriverLock lock;
  return sim::vmm::Unmap(ptr, size);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  SIM_CALL(cuMemSetAccess, ptr, size, desc, count);
  if (desc == nullptr || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < count; ++index) {
    const CUresult rc = sim::vmm::CheckAccess(desc[index]);
    if (rc != CUDA_SUCCESS) return rc;
  }
  sim::DriverLock lock;
  const bool whole = sim::vmm::ForMappings(ptr, size, [&](sim::memory::Range* range) {
    for (size_t index = 0; index < count; ++index) sim::vmm::Allow(range, desc[index]);
  });
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  SIM_CALL(cuMemGetAccess, flags, location, ptr);
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  sim::DriverLock lock;
  const sim::memory::Range* range = sim::memory::FindRange(ptr);
  if (range == nullptr || range->family != sim::memory::Family::kMapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = range->flags >> sim::vmm::AccessShift(location->id) & 3;
  return CUDA_SUCCESS;
}

}  // extern "C"
