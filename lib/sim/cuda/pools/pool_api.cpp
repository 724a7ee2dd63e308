// Stream-ordered allocation, the life of pools, and pools between processes, the pool as a
// descriptor, its allocations as 64 opaque bytes: the entry points.
//
// Every stream call has a per-thread-default-stream twin; both share one body.
#include <string.h>
#include <unistd.h>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/memory_blocks.h"
#include "cuda/pools/pool.h"
#include "cuda/sharing/sharing.h"
#include "machine/calls.h"
#include "machine/machine.h"
#include "machine/version.h"

namespace {

using sim::DriverLock;
using sim::pool::Pool;

// The device that a stream works on, and whether the call may use it.
CUresult DeviceOfStream(CUstream stream, bool per_thread, int* device) {
  if (sim::stream::DeviceOf != nullptr) return sim::stream::DeviceOf(stream, per_thread, device);
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc == CUDA_SUCCESS) *device = context->device;
  return rc;
}

// What cuMemAllocAsync and cuMemAllocFromPoolAsync do; pool null = the device's current one.
CUresult Allocate(CUdeviceptr* dptr, size_t bytes, CUmemoryPool handle, CUstream stream,
                  bool per_thread) {
  DriverLock lock;
  int device = 0;
  CUresult rc = DeviceOfStream(stream, per_thread, &device);
  if (rc != CUDA_SUCCESS) return rc;
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = handle != nullptr ? sim::pool::Find(handle) : sim::pool::CurrentOf(device);
  if (pool == nullptr || pool->is_imported) return CUDA_ERROR_INVALID_VALUE;
  if (sim::stream::CaptureAllocate != nullptr && pool->device >= 0 && bytes > 0) {
    bool captured = false;
    rc = sim::stream::CaptureAllocate(stream, per_thread, pool->device, bytes, dptr, &captured);
    if (captured) return rc;
  }
  return sim::pool::Allocate(pool, bytes, sim::memory::Family::kPool, dptr);
}

CUresult AllocateFromPool(CUdeviceptr* dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                          bool per_thread) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(dptr, bytes, pool, stream, per_thread);
}

CUresult Free(CUdeviceptr dptr, CUstream stream, bool per_thread) {
  using sim::memory::Family;
  DriverLock lock;
  int device = 0;
  CUresult rc = DeviceOfStream(stream, per_thread, &device);
  if (rc != CUDA_SUCCESS) return rc;
  if (dptr == 0) return CUDA_SUCCESS;
  if (sim::stream::CaptureFree != nullptr) {
    bool captured = false;
    rc = sim::stream::CaptureFree(stream, per_thread, dptr, &captured);
    if (captured) return rc;
  }
  sim::memory::Range* range = sim::memory::FindRange(dptr);
  if (range == nullptr || range->base != dptr) return CUDA_ERROR_INVALID_VALUE;
  const bool freeable = range->family == Family::kPool || range->family == Family::kLinear ||
                        range->family == Family::kGraph ||
                        (range->family == Family::kImported && range->pool != 0);
  if (range->family == Family::kManaged) return CUDA_ERROR_NOT_SUPPORTED;
  if (!freeable) return CUDA_ERROR_INVALID_VALUE;
  if (range->family == Family::kLinear) {
    sim::memory::EndLater(range);
  } else {
    sim::memory::EndRange(range);
  }
  return CUDA_SUCCESS;
}

CUresult GivePool(Pool* pool, CUmemoryPool* result) {
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *result = sim::AsHandle<CUmemoryPool>(pool->handle);
  return CUDA_SUCCESS;
}

// The pool of a device, or of the host as a whole; there are none of its nodes, nor for managed
// memory.
template <typename Choose>
CUresult GivePoolOf(CUmemoryPool* result, const CUmemLocation* location, CUmemAllocationType type,
                    Choose choose) {
  if (result == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool on_host = location->type == CU_MEM_LOCATION_TYPE_HOST;
  int device = -1;
  const CUresult found = sim::device::ResolveAllocation(*location, &device);
  if (found == CUDA_ERROR_INVALID_DEVICE) return found;
  if (found != CUDA_SUCCESS || (device < 0 && !on_host) || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  DriverLock lock;
  if (on_host) return GivePool(sim::pool::DefaultOfHost(), result);
  return GivePool(choose(device), result);
}

CUresult SetDevicePool(CUdevice dev, CUmemoryPool handle) {
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  const Pool* pool = sim::pool::Find(handle);
  if (pool == nullptr || pool->device != dev) return CUDA_ERROR_INVALID_VALUE;
  sim::pool::SetCurrent(dev, *pool);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  SIM_CALL(cuMemAllocAsync, dptr, bytesize, hStream);
  return Allocate(dptr, bytesize, nullptr, hStream, /*per_thread=*/false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  SIM_CALL(cuMemAllocAsync_ptsz, dptr, bytesize, hStream);
  return Allocate(dptr, bytesize, nullptr, hStream, /*per_thread=*/true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  SIM_CALL(cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream);
  return AllocateFromPool(dptr, bytesize, pool, hStream, /*per_thread=*/false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  SIM_CALL(cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, hStream);
  return AllocateFromPool(dptr, bytesize, pool, hStream, /*per_thread=*/true);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  SIM_CALL(cuMemFreeAsync, dptr, hStream);
  return Free(dptr, hStream, /*per_thread=*/false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  SIM_CALL(cuMemFreeAsync_ptsz, dptr, hStream);
  return Free(dptr, hStream, /*per_thread=*/true);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  SIM_CALL(cuMemPoolCreate, pool, poolProps);
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_managed = poolProps->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED &&
                          sim::ConfiguredDriver().cuda_version >= 13000;
  if (!is_managed && poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr unsigned kShareable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((poolProps->handleTypes & ~kShareable) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  int device = 0;
  if (sim::device::ResolveAllocation(poolProps->location, &device) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  Pool* created = sim::pool::Create();
  if (created == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  created->device = device;
  created->allocation_type = poolProps->allocType;
  created->location_type = poolProps->location.type;
  created->location_domain = sim::device::DomainOf(poolProps->location);
  created->location_id = created->location_domain < 0 ? poolProps->location.id : device;
  created->handle_types = poolProps->handleTypes;
  created->max_bytes = poolProps->maxSize;
  return GivePool(created, pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  SIM_CALL(cuMemPoolDestroy, pool);
  DriverLock lock;
  Pool* found = sim::pool::Find(pool);
  if (found == nullptr || found->is_default) return CUDA_ERROR_INVALID_VALUE;
  sim::pool::Destroy(found);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  SIM_CALL(cuMemPoolTrimTo, pool, minBytesToKeep);
  DriverLock lock;
  const CUresult capturing = sim::pool::RefuseIfCapturing();
  if (capturing != CUDA_SUCCESS) return capturing;
  Pool* found = sim::pool::Find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  sim::pool::Trim(found, minBytesToKeep);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  SIM_CALL(cuDeviceGetDefaultMemPool, pool_out, dev);
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  return GivePool(sim::pool::DefaultOf(dev), pool_out);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  SIM_CALL(cuDeviceGetMemPool, pool, dev);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::device::IsValid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  DriverLock lock;
  return GivePool(sim::pool::CurrentOf(dev), pool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  SIM_CALL(cuDeviceSetMemPool, dev, pool);
  return SetDevicePool(dev, pool);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  SIM_CALL(cuMemGetDefaultMemPool, pool_out, location, type);
  return GivePoolOf(pool_out, location, type, sim::pool::DefaultOf);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  SIM_CALL(cuMemGetMemPool, pool, location, type);
  return GivePoolOf(pool, location, type, sim::pool::CurrentOf);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  SIM_CALL(cuMemSetMemPool, location, type, pool);
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return SetDevicePool(location->id, pool);
}

}  // extern "C"

namespace {

using sim::DriverLock;
using sim::pool::Pool;

constexpr uint64_t kMagic = 0x314c4f4f46504721;

// What fills a CUmemPoolPtrExportData: the pool's place, and where its maker has the memory.
struct PoolTicket {
  uint64_t magic;
  uint64_t machine_id;
  uint64_t inode;
  uint64_t offset;
  uint64_t bytes;
  int32_t physical_device;
  int32_t place;
  int32_t pid;
  int32_t fd;
  int32_t padding[2];
};
static_assert(sizeof(PoolTicket) == 64 && sizeof(CUmemPoolPtrExportData) == 64);

int PhysicalOf(int device) { return device >= 0 ? sim::device::Physical(device) : -1; }

}  // namespace

extern "C" {

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  SIM_CALL(cuMemPoolExportToShareableHandle, handle_out, pool, handleType, flags);
  DriverLock lock;
  Pool* found = sim::pool::Find(pool);
  if (handle_out == nullptr || found == nullptr || flags != 0 ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      (found->handle_types & handleType) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (found->file.fd < 0 && !sim::machine::MakePoolFile(PhysicalOf(found->device), &found->file)) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const int fd = dup(found->file.fd);  // passed on by exec, as an H200's is
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle_out) = fd;
  return CUDA_SUCCESS;
}

// The imported pool holds the exporter's file and is only a way to its allocations: nothing is
// allocated from it.
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  SIM_CALL(cuMemPoolImportFromShareableHandle, pool_out, handle, handleType, flags);
  const int given_fd = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  DriverLock lock;
  sim::machine::SharedHold file;
  if (pool_out == nullptr || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !sim::machine::HoldPoolFile(given_fd, &file)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Pool* pool = sim::pool::Create();
  if (pool == nullptr) {
    sim::machine::LetGo(&file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pool->location_type = CU_MEM_LOCATION_TYPE_DEVICE;
  pool->location_domain = -1;
  pool->is_imported = true;
  pool->file = file;
  *pool_out = sim::AsHandle<CUmemoryPool>(pool->handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  SIM_CALL(cuMemPoolExportPointer, shareData_out, ptr);
  DriverLock lock;
  const sim::memory::Range* range = sim::memory::FindRange(ptr);
  if (shareData_out == nullptr || range == nullptr || range->base != ptr ||
      range->family != sim::memory::Family::kPool) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Pool* pool = sim::pool::Find(sim::AsHandle<CUmemoryPool>(range->pool));
  if (pool == nullptr || pool->file.fd < 0) return CUDA_ERROR_INVALID_VALUE;
  sim::pool::ExportBlocks(pool, range->arena_offset, range->bytes);
  const PoolTicket ticket = {.magic = kMagic,
                             .machine_id = sim::machine::MachineId(),
                             .inode = sim::shared_file::InodeOf(sim::arena::Descriptor()),
                             .offset = range->arena_offset,
                             .bytes = range->bytes,
                             .physical_device = PhysicalOf(range->device),
                             .place = pool->file.place,
                             .pid = getpid(),
                             .fd = sim::arena::Descriptor(),
                             .padding = {}};
  memcpy(shareData_out, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  SIM_CALL(cuMemPoolImportPointer, ptr_out, pool, shareData);
  DriverLock lock;
  const Pool* found = sim::pool::Find(pool);
  if (ptr_out == nullptr || shareData == nullptr || found == nullptr || !found->is_imported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  PoolTicket ticket;
  memcpy(&ticket, shareData, sizeof(ticket));
  if (ticket.magic != kMagic || ticket.machine_id != sim::machine::MachineId() ||
      ticket.place != found->file.place) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = sim::shared_file::OpenForeign(ticket.pid, ticket.fd, ticket.inode);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = sim::import::Map({fd, ticket.offset, ticket.bytes, ticket.physical_device}, 0,
                                       found->handle, ptr_out);
  close(fd);
  return rc;
}

}  // extern "C"
