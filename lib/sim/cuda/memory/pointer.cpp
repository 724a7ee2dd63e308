// What a pointer is: cuPointerGetAttribute and its siblings.
//
// Must not know how the memory behind a pointer came to be, only what the address map says.
#include <string.h>

#include "cuda/memory/memory.h"
#include "cuda/memory/vmm.h"
#include "cuda/pools/pool.h"
#include "machine/calls.h"
#include "machine/machine.h"

namespace {

using sim::DriverLock;
using sim::memory::Family;
using sim::memory::Range;

bool IsHostPool(const Range& range) {
  const sim::pool::Pool* pool = sim::pool::Find(sim::AsHandle<CUmemoryPool>(range.pool));
  return pool != nullptr && pool->device < 0;
}

bool IsManaged(const Range& range) {
  if (range.family == Family::kManaged) return true;
  const sim::pool::Pool* pool = sim::pool::Find(sim::AsHandle<CUmemoryPool>(range.pool));
  return pool != nullptr && pool->allocation_type == CU_MEM_ALLOCATION_TYPE_MANAGED;
}

bool IsHost(const Range& range) {
  return range.family == Family::kHost || range.family == Family::kRegistered ||
         (IsHostPool(range) && !IsManaged(range)) ||
         (range.family == Family::kMapped && range.device < 0);
}

// An attribute's value as the bytes that the caller gets.
struct Answer {
  uint64_t value;
  size_t bytes;  // 0 = the pointer has no such attribute
};

constexpr Answer kNone = {0, 0};

Answer Word(uint64_t value) { return {value, sizeof(uint32_t)}; }
Answer Wide(uint64_t value) { return {value, sizeof(uint64_t)}; }

int OrdinalOf(const Range& range) {
  if (range.device >= 0) return range.device;
  const sim::context::Context* context =
      sim::context::Find(sim::AsHandle<CUcontext>(range.context));
  return context != nullptr ? context->device : 0;
}

// Facts about the mapping that an address lies in.
Answer MappingAnswer(const Range& range, CUpointer_attribute attribute) {
  uintptr_t base = range.base;
  size_t bytes = range.bytes;
  if (range.family == Family::kMapped) sim::vmm::FindReservation(range.base, &base, &bytes);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Wide(range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Wide(range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Wide(base);
    default:
      return Wide(bytes);
  }
}

// `ptr` is an address inside the range.
Answer Ask(const Range& range, CUpointer_attribute attribute, CUdeviceptr ptr) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Wide(range.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Word(IsHost(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return range.accessible ? Wide(ptr) : kNone;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return range.family != Family::kMapped && (IsHost(range) || IsManaged(range)) ? Wide(ptr)
                                                                                    : kNone;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Word(0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Wide(range.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Word(IsManaged(range));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Word(static_cast<uint32_t>(OrdinalOf(range)));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Word(range.family == Family::kLinear);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return MappingAnswer(range, attribute);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Word(range.accessible);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Wide(0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Word(0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Word(range.accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Wide(range.pool);
    default:
      return kNone;
  }
}

bool IsKnown(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SIM_CALL(cuPointerGetAttribute, data, attribute, ptr);
  if (data == nullptr || !IsKnown(attribute)) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const Range* range = sim::memory::FindRange(ptr);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Answer answer = Ask(*range, attribute, ptr);
  if (answer.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  memcpy(data, &answer.value, answer.bytes);
  return CUDA_SUCCESS;
}

// Unlike the single form this one succeeds for any pointer: what does not apply is answered with
// zero (an ordinal with CU_DEVICE_INVALID).
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  SIM_CALL(cuPointerGetAttributes, numAttributes, attributes, data, ptr);
  if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned index = 0; index < numAttributes; ++index) {
    if (!IsKnown(attributes[index]) || data[index] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  const Range* range = sim::memory::FindRange(ptr);
  const Range nothing = {};
  for (unsigned index = 0; index < numAttributes; ++index) {
    Answer answer = Ask(range != nullptr ? *range : nothing, attributes[index], ptr);
    if (range == nullptr) {
      const bool ordinal = attributes[index] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
      answer.value = ordinal ? static_cast<uint32_t>(CU_DEVICE_INVALID) : 0;
    }
    // Attributes that do not apply here are all pointers.
    memcpy(data[index], &answer.value, answer.bytes != 0 ? answer.bytes : sizeof(void*));
  }
  return CUDA_SUCCESS;
}

// Synchronous memory operations are all the simulator does: the request is accepted as it is.
CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SIM_CALL(cuPointerSetAttribute, value, attribute, ptr);
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  return sim::memory::FindRange(ptr) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
