// Advice about managed memory and what a range remembers of it.
//
// Advice is remembered and changes nothing else: the simulator has no faults to avoid.
#include <string.h>

#include "cuda/devices/device.h"
#include "cuda/memory/managed_state.h"
#include "machine/calls.h"

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
