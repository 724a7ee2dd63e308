// Managed memory: allocation, where its pages are, and advice about them.
//
// Allocating costs no device memory, as on a GPU that faults pages in: prefetching does, as far as
// there is room, and allocations that cannot move push managed pages out again. Small ones share
// granules of addresses as linear ones do. Advice is remembered and changes nothing else: the
// simulator has no faults to avoid.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "cuda/devices/device.h"
#include "cuda/memory/arena.h"
#include "cuda/memory/heap.h"
#include "cuda/memory/memory.h"
#include "cuda/memory/memory_blocks.h"
#include "cuda/memory/ranges.h"
#include "machine/calls.h"
#include "machine/machine.h"

namespace sim::managed {

// A place: a logical device, the host (as device::ResolveLocation names it), or none.
inline constexpr int kHostPlace = -1;
inline constexpr int kNoPlace = -2;

struct State {
  heap::Block block;        // its addresses
  int resident_device;      // kNoPlace = all on the host
  uint64_t resident_bytes;  // charged there
  int preferred_place;
  int prefetched_place;
  uint32_t accessed_by;  // one bit per logical device, bit 31 for the host
  bool is_read_mostly;
};

inline constexpr unsigned kHostBit = 31;

// The state of a managed range.
State& StateOf(const memory::Range& range);

// The managed range that holds [address, address+bytes) entirely, or nullptr.
memory::Range* Find(CUdeviceptr address, size_t bytes);

// The location that a device number of the older calls names (CU_DEVICE_CPU = host).
CUmemLocation LocationOf(CUdevice device);

namespace {

using memory::Family;
using memory::Range;

void PushOut(State* state, uint64_t bytes) {
  if (state->resident_device == kNoPlace) return;
  const uint64_t moved_bytes = std::min(bytes, state->resident_bytes);
  memory::ReleaseHidden(state->resident_device, moved_bytes);
  state->resident_bytes -= moved_bytes;
  if (state->resident_bytes == 0) state->resident_device = kNoPlace;
}

void PullIn(Range* range, State* state, int device, uint64_t bytes) {
  if (state->resident_device != device) PushOut(state, state->resident_bytes);
  const uint64_t range_bytes = heap::InGranules(range->bytes);
  const uint64_t wanted_bytes = std::min(bytes, range_bytes - state->resident_bytes);
  state->resident_bytes += machine::ReserveUpTo(device::Physical(device), wanted_bytes);
  state->resident_device = state->resident_bytes > 0 ? device : kNoPlace;
}

CUresult Allocate(CUdeviceptr* address, size_t bytes, unsigned flags,
                  const context::Context& context) {
  auto* state = static_cast<State*>(calloc(1, sizeof(State)));
  heap::Block block = {};
  Range range = {};
  if (state == nullptr ||
      heap::Take(heap::kNowhere, context.handle, bytes, &block) != CUDA_SUCCESS) {
    free(state);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *state = {.block = block,
            .resident_device = kNoPlace,
            .resident_bytes = 0,
            .preferred_place = kNoPlace,
            .prefetched_place = kNoPlace,
            .accessed_by = 0,
            .is_read_mostly = false};
  range.arena_offset = block.offset;
  range.base = arena::AddressOf(block.offset);
  range.bytes = bytes;
  range.family = Family::kManaged;
  range.accessible = true;
  range.device = context.device;
  range.context = context.handle;
  range.flags = flags;
  range.detail = reinterpret_cast<uintptr_t>(state);
  if (ranges::Add(range) == nullptr) {
    heap::Give(block);
    free(state);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = range.base;
  return CUDA_SUCCESS;
}

CUresult CheckStream(CUstream stream, bool per_thread) {
  int device = 0;
  if (stream::DeviceOf != nullptr) return stream::DeviceOf(stream, per_thread, &device);
  context::Context* context = nullptr;
  return context::Current(&context);
}

CUresult Prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation& location) {
  int place = kNoPlace;
  const CUresult rc = device::ResolveLocation(location, &place);
  if (rc != CUDA_SUCCESS) return rc;
  Range* range = Find(address, bytes);
  if (range == nullptr || place == kNoPlace) return CUDA_ERROR_INVALID_VALUE;
  State& state = StateOf(*range);
  state.prefetched_place = place;
  if (place == kHostPlace) {
    PushOut(&state, heap::InGranules(bytes));
  } else {
    PullIn(range, &state, place, heap::InGranules(bytes));
  }
  return CUDA_SUCCESS;
}

CUresult PrefetchOne(CUdeviceptr address, size_t bytes, const CUmemLocation& location,
                     unsigned flags, CUstream stream, bool per_thread) {
  DriverLock lock;
  const CUresult rc = CheckStream(stream, per_thread);
  if (rc != CUDA_SUCCESS) return rc;
  if (flags != 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return Prefetch(address, bytes, location);
}

// One batch of the *BatchAsync calls: every range first checked, then moved.
struct Batch {
  CUdeviceptr* addresses;
  size_t* sizes;
  size_t count;
  CUmemLocation* locations;  // nullptr: only discarding
  size_t* location_starts;
  size_t location_count;
  unsigned long long flags;
};

CUresult RunBatch(const Batch& batch, CUstream stream, bool per_thread) {
  DriverLock lock;
  CUresult rc = CheckStream(stream, per_thread);
  if (rc != CUDA_SUCCESS) return rc;
  if (batch.flags != 0 || batch.count == 0 || batch.addresses == nullptr ||
      batch.sizes == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (batch.location_count > 0 && (batch.locations == nullptr || batch.location_starts == nullptr ||
                                   batch.location_starts[0] != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t index = 0; index < batch.count; ++index) {
    if (Find(batch.addresses[index], batch.sizes[index]) == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  size_t current = 0;
  for (size_t index = 0; index < batch.count && batch.location_count > 0; ++index) {
    while (current + 1 < batch.location_count && batch.location_starts[current + 1] <= index) {
      ++current;
    }
    rc = Prefetch(batch.addresses[index], batch.sizes[index], batch.locations[current]);
    if (rc != CUDA_SUCCESS) return rc;
  }
  return CUDA_SUCCESS;
}

}  // namespace

State& StateOf(const Range& range) {
  return *reinterpret_cast<State*>(static_cast<uintptr_t>(range.detail));
}

Range* Find(CUdeviceptr address, size_t bytes) {
  Range* range = memory::FindRange(address);
  if (range == nullptr || range->family != Family::kManaged || bytes == 0) return nullptr;
  return bytes <= range->bytes - (address - range->base) ? range : nullptr;
}

uint64_t Evict(int device, uint64_t bytes) {
  uint64_t freed_bytes = 0;
  uintptr_t from = 0;
  while (Range* range = ranges::FirstFrom(from)) {
    from = range->base + 1;
    if (range->family != Family::kManaged || StateOf(*range).resident_device != device) continue;
    if (freed_bytes >= bytes) break;
    const uint64_t before_bytes = StateOf(*range).resident_bytes;
    PushOut(&StateOf(*range), bytes - freed_bytes);
    freed_bytes += before_bytes - StateOf(*range).resident_bytes;
  }
  return freed_bytes;
}

void End(Range* range) {
  State* state = &StateOf(*range);
  PushOut(state, state->resident_bytes);
  heap::Give(state->block);
  free(state);
}

CUmemLocation LocationOf(CUdevice device) {
  CUmemLocation location = {};
  const bool is_host = device == kHostPlace;
  location.type = is_host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = is_host ? 0 : device;
  return location;
}

}  // namespace sim::managed

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  sim::memory::ClearResult(dptr);
  SIM_CALL(cuMemAllocManaged, dptr, bytesize, flags);
  sim::DriverLock lock;
  sim::context::Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  if (dptr == nullptr || bytesize == 0 || !known) return CUDA_ERROR_INVALID_VALUE;
  return sim::managed::Allocate(dptr, bytesize, flags, *context);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  SIM_CALL(cuMemPrefetchAsync, devPtr, count, dstDevice, hStream);
  return sim::managed::PrefetchOne(devPtr, count, sim::managed::LocationOf(dstDevice), 0, hStream,
                                   /*per_thread=*/false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                 CUstream hStream) {
  SIM_CALL(cuMemPrefetchAsync_ptsz, devPtr, count, dstDevice, hStream);
  return sim::managed::PrefetchOne(devPtr, count, sim::managed::LocationOf(dstDevice), 0, hStream,
                                   /*per_thread=*/true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  SIM_CALL(cuMemPrefetchAsync_v2, devPtr, count, location, flags, hStream);
  return sim::managed::PrefetchOne(devPtr, count, location, flags, hStream, /*per_thread=*/false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                    unsigned int flags, CUstream hStream) {
  SIM_CALL(cuMemPrefetchAsync_v2_ptsz, devPtr, count, location, flags, hStream);
  return sim::managed::PrefetchOne(devPtr, count, location, flags, hStream, /*per_thread=*/true);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  SIM_CALL(cuMemPrefetchBatchAsync, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
           numPrefetchLocs, flags, hStream);
  return sim::managed::RunBatch(
      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags}, hStream,
      /*per_thread=*/false);
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                      CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                      size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream) {
  SIM_CALL(cuMemPrefetchBatchAsync_ptsz, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
           numPrefetchLocs, flags, hStream);
  return sim::managed::RunBatch(
      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags}, hStream,
      /*per_thread=*/true);
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  SIM_CALL(cuMemDiscardBatchAsync, dptrs, sizes, count, flags, hStream);
  return sim::managed::RunBatch({dptrs, sizes, count, nullptr, nullptr, 0, flags}, hStream,
                                /*per_thread=*/false);
}

CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                     unsigned long long flags, CUstream hStream) {
  SIM_CALL(cuMemDiscardBatchAsync_ptsz, dptrs, sizes, count, flags, hStream);
  return sim::managed::RunBatch({dptrs, sizes, count, nullptr, nullptr, 0, flags}, hStream,
                                /*per_thread=*/true);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  SIM_CALL(cuMemDiscardAndPrefetchBatchAsync, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
           numPrefetchLocs, flags, hStream);
  return sim::managed::RunBatch(
      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags}, hStream,
      /*per_thread=*/false);
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                                CUmemLocation* prefetchLocs,
                                                size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                                unsigned long long flags, CUstream hStream) {
  SIM_CALL(cuMemDiscardAndPrefetchBatchAsync_ptsz, dptrs, sizes, count, prefetchLocs,
           prefetchLocIdxs, numPrefetchLocs, flags, hStream);
  return sim::managed::RunBatch(
      {dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags}, hStream,
      /*per_thread=*/true);
}

}  // extern "C"

namespace sim::managed {
namespace {

using memory::Range;

uint32_t BitOf(int place) {
  return 1u << (place == kHostPlace ? kHostBit : static_cast<unsigned>(place));
}

// Whether an advice takes a place at all; the others ignore it.
bool TakesPlace(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
         advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult Apply(State* state, CUmem_advise advice, int place) {
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      state->is_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      state->preferred_place = place;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      state->preferred_place = kNoPlace;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      state->accessed_by |= BitOf(place);
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      state->accessed_by &= ~BitOf(place);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                const CUmemLocation& location) {
  DriverLock lock;
  int place = kNoPlace;
  const CUresult rc = TakesPlace(advice) ? device::ResolveLocation(location, &place) : CUDA_SUCCESS;
  if (rc != CUDA_SUCCESS) return rc;
  const Range* range = Find(address, bytes);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Apply(&StateOf(*range), advice, place);
}

int LocationType(int place) {
  if (place == kNoPlace) return CU_MEM_LOCATION_TYPE_INVALID;
  return place == kHostPlace ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
}

// The attributes that are one int; false for others.
bool ReadInt(const State& state, CUmem_range_attribute attribute, int* value) {
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *value = state.is_read_mostly ? 1 : 0;
      return true;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *value = state.preferred_place;
      return true;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *value = state.prefetched_place;
      return true;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *value = LocationType(state.preferred_place);
      return true;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *value = state.preferred_place > 0 ? state.preferred_place : 0;
      return true;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *value = LocationType(state.prefetched_place);
      return true;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *value = state.prefetched_place > 0 ? state.prefetched_place : 0;
      return true;
    default:
      return false;
  }
}

// Fills an array of places, the unused rest with kNoPlace.
void ReadAccessedBy(const State& state, int* places, size_t count) {
  size_t filled = 0;
  for (unsigned bit = 0; bit <= kHostBit && filled < count; ++bit) {
    if ((state.accessed_by >> bit & 1) == 0) continue;
    places[filled++] = bit == kHostBit ? kHostPlace : static_cast<int>(bit);
  }
  while (filled < count) places[filled++] = kNoPlace;
}

CUresult ReadAttribute(void* result, size_t result_bytes, CUmem_range_attribute attribute,
                       CUdeviceptr address, size_t bytes) {
  const Range* range = Find(address, bytes);
  if (range == nullptr || result == nullptr || result_bytes == 0 || result_bytes % 4 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const State& state = StateOf(*range);
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    ReadAccessedBy(state, static_cast<int*>(result), result_bytes / 4);
    return CUDA_SUCCESS;
  }
  int value = 0;
  if (result_bytes != 4 || !ReadInt(state, attribute, &value)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(result, &value, sizeof(value));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sim::managed

extern "C" {

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  SIM_CALL(cuMemAdvise, devPtr, count, advice, device);
  return sim::managed::Advise(devPtr, count, advice, sim::managed::LocationOf(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  SIM_CALL(cuMemAdvise_v2, devPtr, count, advice, location);
  return sim::managed::Advise(devPtr, count, advice, location);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  SIM_CALL(cuMemRangeGetAttribute, data, dataSize, attribute, devPtr, count);
  sim::DriverLock lock;
  return sim::managed::ReadAttribute(data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  SIM_CALL(cuMemRangeGetAttributes, data, dataSizes, attributes, numAttributes, devPtr, count);
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim::DriverLock lock;
  for (size_t index = 0; index < numAttributes; ++index) {
    const CUresult rc = sim::managed::ReadAttribute(data[index], dataSizes[index],
                                                    attributes[index], devPtr, count);
    if (rc != CUDA_SUCCESS) return rc;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
