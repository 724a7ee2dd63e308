// Memory handles between processes: cuIpcGetMemHandle and its importers, and how a memory file of
// another process is recognised and reached.
//
// A handle names the exporting process, its arena's descriptor and a place in it; the importer maps
// that place. When the exporter is gone the handle leads nowhere. Must not know events.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/heap.h"
#include "cuda/memory/memory_blocks.h"
#include "cuda/memory/ranges.h"
#include "cuda/sharing/sharing.h"
#include "machine/calls.h"
#include "machine/machine.h"

namespace sim::shared_file {
namespace {

// The kernel shows a memory file's name as "/memfd:NAME (deleted)".
constexpr char kArenaShown[] = "/memfd:gpufence-sim-device-memory";

bool ReadShownName(int fd, char* name, size_t capacity) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const ssize_t bytes = readlink(path, name, capacity - 1);
  name[bytes > 0 ? bytes : 0] = '\0';
  return bytes > 0;
}

// Whether a descriptor is some process's device memory arena.
bool IsArena(int fd) {
  char name[128];
  return ReadShownName(fd, name, sizeof(name)) &&
         strncmp(name, kArenaShown, sizeof(kArenaShown) - 1) == 0;
}

}  // namespace

int OpenForeign(int pid, int fd, uint64_t inode) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
  const int opened = open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return -1;
  if (InodeOf(opened) == inode && IsArena(opened)) return opened;
  close(opened);
  return -1;
}

uint64_t InodeOf(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace sim::shared_file

namespace sim::import {

CUresult Map(const Piece& piece, uint64_t context, uint64_t pool, CUdeviceptr* address) {
  const uint64_t start = piece.offset / machine::kGranuleBytes * machine::kGranuleBytes;
  const uint64_t bytes = heap::InGranules(piece.offset + piece.bytes - start);
  const uintptr_t base = arena::MapFile(0, bytes, piece.fd, start);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memory::Range range = {};
  range.base = base + (piece.offset - start);
  range.bytes = piece.bytes;
  range.family = memory::Family::kImported;
  range.accessible = true;
  range.device = device::Logical(piece.physical_device);
  range.context = context;
  range.pool = pool;
  range.arena_offset = piece.offset;
  range.detail = bytes;
  if (ranges::Add(range) == nullptr) {
    arena::Unmap(base, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = range.base;
  return CUDA_SUCCESS;
}

}  // namespace sim::import

namespace {

using sim::DriverLock;
using sim::context::Context;
using sim::memory::Family;
using sim::memory::Range;

constexpr uint64_t kMagic = 0x3143504946504721;  // "!GPFIPC1"

// What fills the 64 opaque bytes of a CUipcMemHandle.
struct Ticket {
  uint64_t magic;
  uint64_t machine_id;
  uint64_t inode;
  uint64_t offset;
  uint64_t bytes;
  uint64_t mark;
  uint32_t mark_place;
  int32_t pid;
  int32_t fd;
  int32_t physical_device;
};
static_assert(sizeof(Ticket) == 64 && sizeof(CUipcMemHandle) == 64);

// Opening one handle several times gives one mapping, closed as often as it was opened.
Range* FindOpened(const Context& context, const Ticket& ticket) {
  uintptr_t from = 0;
  while (Range* range = sim::ranges::FirstFrom(from)) {
    from = range->base + 1;
    if (range->family == Family::kImported && range->pool == 0 &&
        range->context == context.handle && range->arena_offset == ticket.offset &&
        range->charged_bytes == ticket.inode) {
      return range;
    }
  }
  return nullptr;
}

CUresult MapTicket(const Ticket& ticket, const Context& context, CUdeviceptr* address) {
  const int fd = sim::shared_file::OpenForeign(ticket.pid, ticket.fd, ticket.inode);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  if (!sim::arena::IsMarked(fd, ticket.mark_place, ticket.mark)) {  // freed meanwhile
    close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult rc = sim::import::Map({fd, ticket.offset, ticket.bytes, ticket.physical_device},
                                       context.handle, 0, address);
  close(fd);
  return rc;
}

CUresult Open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
  DriverLock lock;
  Context* context = nullptr;
  CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  Ticket ticket;
  memcpy(&ticket, &handle, sizeof(ticket));
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || ticket.magic != kMagic ||
      ticket.machine_id != sim::machine::MachineId()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (ticket.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // the exporter's own handle
  Range* opened = FindOpened(*context, ticket);
  if (opened == nullptr) {
    CUdeviceptr mapped = 0;
    rc = MapTicket(ticket, *context, &mapped);
    if (rc != CUDA_SUCCESS) return rc;
    opened = sim::memory::FindRange(mapped);
    opened->charged_bytes =
        ticket.inode;  // imports are never charged: the field tells exporters apart
  }
  ++opened->flags;  // how often it is open
  *address = opened->base;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// Only memory of cuMemAlloc can be exported this way.
CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  SIM_CALL(cuIpcGetMemHandle, pHandle, dptr);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  Range* range = sim::memory::FindRange(dptr);
  if (pHandle == nullptr || range == nullptr || range->family != Family::kLinear) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (range->flags == 0) range->flags = sim::arena::MakeMark();
  if (range->flags == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const Ticket ticket = {.magic = kMagic,
                         .machine_id = sim::machine::MachineId(),
                         .inode = sim::shared_file::InodeOf(sim::arena::Descriptor()),
                         .offset = range->arena_offset,
                         .bytes = range->bytes,
                         .mark = sim::arena::MarkAt(range->flags),
                         .mark_place = range->flags,
                         .pid = getpid(),
                         .fd = sim::arena::Descriptor(),
                         .physical_device = sim::device::Physical(range->device)};
  memcpy(pHandle, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  SIM_CALL(cuIpcOpenMemHandle, pdptr, handle, Flags);
  return Open(pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  SIM_CALL(cuIpcOpenMemHandle_v2, pdptr, handle, Flags);
  return Open(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  SIM_CALL(cuIpcCloseMemHandle, dptr);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  Range* range = sim::memory::FindRange(dptr);
  if (range == nullptr || range->base != dptr || range->family != Family::kImported ||
      range->pool != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--range->flags == 0) sim::memory::EndRange(range);
  return CUDA_SUCCESS;
}

}  // extern "C"
