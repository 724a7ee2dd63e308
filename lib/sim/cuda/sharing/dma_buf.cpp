// See sharing.h; also cuMemGetHandleForAddressRange, which makes them.
//
// As on an H200 (driver 580): a range may cover several allocations, each of which is held whole;
// of small ones the granule that they share, of a pool's the blocks that the range touches.
#include <unistd.h>

#include <algorithm>

#include "cuda/devices/device.h"
#include "cuda/memory/heap.h"
#include "cuda/memory/memory_blocks.h"
#include "cuda/memory/vmm.h"
#include "cuda/pools/pool.h"
#include "cuda/sharing/sharing.h"
#include "machine/calls.h"
#include "machine/machine.h"
#include "machine/vec.h"

namespace sim::dma_buf {
namespace {

constexpr uint64_t kPageBytes = 4096;

struct Pin {
  uint64_t offset;
  int place;
};
constinit Vec<Pin> g_pins = {};

const Pin* FindPin(uint64_t offset) {
  for (const Pin& pin : g_pins) {
    if (pin.offset == offset) return &pin;
  }
  return nullptr;
}

bool PinMemory(int fd, int device, uint64_t offset, uint64_t bytes) {
  const Pin* known = FindPin(offset);
  if (known != nullptr) return machine::HoldByDmaBuf(fd, known->place);
  const int place = machine::PinByDmaBuf(fd, device::Physical(device), bytes);
  return place >= 0 && g_pins.Push({offset, place});
}

bool PinLinear(int fd, const memory::Range& range) {
  const heap::Block block = memory::BlockOf(range);
  const uint64_t start = block.offset / machine::kGranuleBytes * machine::kGranuleBytes;
  const uint64_t bytes = block.granule_bytes != 0 ? block.granule_bytes : machine::kGranuleBytes;
  return PinMemory(fd, range.device, start, bytes);
}

bool PinMapped(int fd, const memory::Range& range) {
  const vmm::Physical* physical = vmm::Behind(range);
  if (physical == nullptr || range.device < 0) return false;
  if (physical->shared.fd >= 0) return machine::HoldByDmaBuf(fd, physical->shared.place);
  return PinMemory(fd, range.device, physical->offset, physical->charged_bytes);
}

// The blocks that `bytes` from an address on lie in.
bool PinPiece(int fd, const memory::Range& range, CUdeviceptr from, uint64_t bytes) {
  const uint64_t start = range.arena_offset + (from - range.base);
  const uint64_t end = std::min(start + bytes, range.arena_offset + range.bytes);
  uint64_t block = start / pool::kBlockBytes * pool::kBlockBytes;
  for (; block < end; block += pool::kBlockBytes) {
    if (!PinMemory(fd, range.device, block, pool::kBlockBytes)) return false;
  }
  return true;
}

bool PinRange(int fd, const memory::Range& range, CUdeviceptr from, uint64_t bytes) {
  if (range.family == memory::Family::kLinear) return PinLinear(fd, range);
  if (range.family == memory::Family::kMapped) return PinMapped(fd, range);
  return range.family == memory::Family::kPool && range.device >= 0 &&
         PinPiece(fd, range, from, bytes);
}

// Allocations may follow on each other without a gap.
bool PinAll(int fd, CUdeviceptr address, size_t bytes) {
  for (CUdeviceptr at = address; at < address + bytes;) {
    const memory::Range* range = memory::FindRange(at);
    if (range == nullptr || !PinRange(fd, *range, at, address + bytes - at)) return false;
    at = range->base + range->bytes;
  }
  return true;
}

}  // namespace

void Leave(uint64_t offset) {
  const Pin* pin = FindPin(offset);
  if (pin == nullptr) return;
  const int place = pin->place;
  g_pins.Erase(static_cast<size_t>(pin - g_pins.begin()));
  machine::LeavePinned(place);
}

bool IsPinned(uint64_t offset) { return FindPin(offset) != nullptr; }

}  // namespace sim::dma_buf

extern "C" {

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  SIM_CALL(cuMemGetHandleForAddressRange, handle, dptr, size, handleType, flags);
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (handle == nullptr || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || size == 0 ||
      dptr % sim::dma_buf::kPageBytes != 0 || size % sim::dma_buf::kPageBytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = sim::machine::OpenDmaBuf();
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!sim::dma_buf::PinAll(fd, dptr, size)) {
    close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<int*>(handle) = fd;
  return CUDA_SUCCESS;
}

}  // extern "C"
