// Pools between processes: the pool as a descriptor, its allocations as 64 opaque bytes.
#include <string.h>
#include <unistd.h>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/pools/pool.h"
#include "cuda/sharing/import.h"
#include "cuda/sharing/shared_file.h"
#include "machine/calls.h"
#include "machine/machine.h"

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
