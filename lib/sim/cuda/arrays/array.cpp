// CUDA arrays and mipmapped arrays: creation, levels, end, where their bytes are, and the entry
// points, with their 32-bit forms. Must not know how sparse arrays are mapped (array_sparse.cpp).
#include "cuda/arrays/array.h"

#include <limits.h>

#include <algorithm>

#include "cuda/memory/arena.h"
#include "cuda/memory/memory_blocks.h"
#include "cuda/memory/ranges.h"
#include "cuda/memory/vmm.h"
#include "machine/calls.h"

namespace sim {
namespace array {
namespace {

constexpr uint64_t kLevelAlignment = heap::kUnitBytes;

constinit Table<Array, Kind::kArray> g_arrays;
constinit Table<Mipmap, Kind::kMipmappedArray> g_mipmaps;

bool OwnsMemory(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  return (descriptor.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0;
}

// Puts an array's block on the address map, where copies look up what they may touch.
CUresult AddBytes(Storage* storage, uint64_t bytes) {
  memory::Range range = {};
  range.base = arena::AddressOf(storage->block.offset);
  range.bytes = bytes;
  range.family = memory::Family::kArray;
  range.accessible = true;
  range.device = storage->device;
  if (ranges::Add(range) != nullptr) return CUDA_SUCCESS;
  heap::Give(storage->block);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Fill(Storage* storage, const context::Context& context,
              const CUDA_ARRAY3D_DESCRIPTOR& descriptor, const Shape& shape, unsigned level_count) {
  storage->descriptor = descriptor;
  storage->shape = shape;
  storage->context = context.handle;
  storage->device = context.device;
  storage->level_count = level_count;
  if (!OwnsMemory(descriptor)) return CUDA_SUCCESS;
  const uint64_t bytes = LevelOffset(*storage, level_count);
  if (bytes == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t owner = heap::ArraysOf(context.handle, shape.element_bytes);
  CUresult rc = heap::Take(context.device, owner, bytes, &storage->block);
  if (rc == CUDA_SUCCESS) rc = AddBytes(storage, bytes);
  storage->has_block = rc == CUDA_SUCCESS;
  return rc;
}

void Drain(Storage* storage) {
  for (const Mapping& mapping : storage->mappings) vmm::DropMapping(mapping.handle);
  storage->mappings.Free();
  if (!storage->has_block) return;
  ranges::Remove(memory::FindRange(arena::AddressOf(storage->block.offset)));
  heap::Give(storage->block);
  storage->has_block = false;
}

void EndMipmap(uint64_t handle, Mipmap* mipmap) {
  for (const uint64_t level : mipmap->levels) {
    if (level != 0) g_arrays.Destroy(level);
  }
  mipmap->levels.Free();
  Drain(&mipmap->storage);
  g_mipmaps.Destroy(handle);
}

}  // namespace

Array* Find(CUarray handle) { return g_arrays.Find(handle); }
Mipmap* Find(CUmipmappedArray handle) { return g_mipmaps.Find(handle); }

Storage* StorageOf(Array* array) {
  if (array->mipmap == 0) return &array->storage;
  return &g_mipmaps.Find(array->mipmap)->storage;
}

uint64_t LevelOffset(const Storage& storage, unsigned level) {
  uint64_t offset = 0;
  for (unsigned index = 0; index < level; ++index) {
    const uint64_t bytes = BytesOf(LevelOf(storage.shape, index));
    offset += (bytes + kLevelAlignment - 1) / kLevelAlignment * kLevelAlignment;
  }
  return offset;
}

CUresult Create(const context::Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                CUarray* result) {
  Shape shape = {};
  CUresult rc = Measure(descriptor, &shape);
  if (rc != CUDA_SUCCESS) return rc;
  uint64_t handle = 0;
  Array* array = g_arrays.Create(&handle);
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  rc = Fill(&array->storage, context, descriptor, shape, 1);
  if (rc != CUDA_SUCCESS) {
    g_arrays.Destroy(handle);
    return rc;
  }
  *result = AsHandle<CUarray>(handle);
  return CUDA_SUCCESS;
}

CUresult CreateMipmap(const context::Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                      unsigned level_count, CUmipmappedArray* result) {
  Shape shape = {};
  CUresult rc = Measure(descriptor, &shape);
  if (rc != CUDA_SUCCESS) return rc;
  level_count = std::clamp(level_count, 1u, MaxLevels(shape));
  uint64_t handle = 0;
  Mipmap* mipmap = g_mipmaps.Create(&handle);
  if (mipmap == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  rc = Fill(&mipmap->storage, context, descriptor, shape, level_count);
  if (rc != CUDA_SUCCESS) {
    g_mipmaps.Destroy(handle);
    return rc;
  }
  *result = AsHandle<CUmipmappedArray>(handle);
  return CUDA_SUCCESS;
}

CUresult GetLevel(CUmipmappedArray handle, unsigned level, CUarray* result) {
  Mipmap* mipmap = Find(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= mipmap->storage.level_count) return CUDA_ERROR_INVALID_VALUE;
  while (mipmap->levels.size() < mipmap->storage.level_count) {
    if (!mipmap->levels.Push(0)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t& known = mipmap->levels[level];
  if (known == 0) {
    Array* array = g_arrays.Create(&known);
    if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    array->mipmap = HandleValue(handle);
    array->level = level;
  }
  *result = AsHandle<CUarray>(known);
  return CUDA_SUCCESS;
}

CUresult Destroy(CUarray handle) {
  Array* array = Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (array->mipmap != 0) return CUDA_ERROR_INVALID_VALUE;  // a level ends with its mipmap
  Drain(&array->storage);
  g_arrays.Destroy(handle);
  return CUDA_SUCCESS;
}

CUresult Destroy(CUmipmappedArray handle) {
  Mipmap* mipmap = Find(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  EndMipmap(HandleValue(handle), mipmap);
  return CUDA_SUCCESS;
}

CUresult Describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  Array* array = Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Storage* storage = StorageOf(array);
  *descriptor = storage->descriptor;
  if (array->mipmap == 0) return CUDA_SUCCESS;
  const Shape shape = LevelOf(storage->shape, array->level);
  descriptor->Width = shape.width;
  descriptor->Height = storage->descriptor.Height == 0 ? 0 : shape.height;
  descriptor->Depth = storage->descriptor.Depth == 0 ? 0 : shape.depth;
  return CUDA_SUCCESS;
}

}  // namespace array

namespace memory {

bool ViewArray(CUarray handle, ArrayView* view) {
  DriverLock lock;
  array::Array* array = array::Find(handle);
  if (array == nullptr) return false;
  const array::Storage* storage = array::StorageOf(array);
  if (!storage->has_block) return false;
  const array::Shape shape = array::LevelOf(storage->shape, array->level);
  *view = {.address =
               arena::AddressOf(storage->block.offset + array::LevelOffset(*storage, array->level)),
           .row_bytes = shape.width * shape.element_bytes,
           .pitch = array::PitchOf(shape),
           .height = shape.height,
           .depth = shape.depth,
           .element_bytes = shape.element_bytes};
  return true;
}

}  // namespace memory

void EndArraysOf(context::Context* context) {
  array::g_mipmaps.ForEach([&](uint64_t handle, array::Mipmap* mipmap) {
    if (mipmap->storage.context == context->handle) array::EndMipmap(handle, mipmap);
  });
  array::g_arrays.ForEach([&](uint64_t handle, array::Array* array) {
    if (array->mipmap == 0 && array->storage.context == context->handle) {
      array::Drain(&array->storage);
      array::g_arrays.Destroy(handle);
    }
  });
}

}  // namespace sim

namespace {

using sim::DriverLock;
using sim::context::Context;

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR& descriptor) {
  return {.Width = descriptor.Width,
          .Height = descriptor.Height,
          .Depth = 0,
          .Format = descriptor.Format,
          .NumChannels = descriptor.NumChannels,
          .Flags = 0};
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR_v1& descriptor) {
  return {.Width = descriptor.Width,
          .Height = descriptor.Height,
          .Depth = 0,
          .Format = descriptor.Format,
          .NumChannels = descriptor.NumChannels,
          .Flags = 0};
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY3D_DESCRIPTOR_v1& descriptor) {
  return {.Width = descriptor.Width,
          .Height = descriptor.Height,
          .Depth = descriptor.Depth,
          .Format = descriptor.Format,
          .NumChannels = descriptor.NumChannels,
          .Flags = descriptor.Flags};
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) { return descriptor; }

template <typename Descriptor>
CUresult Create(CUarray* result, const Descriptor* descriptor) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (result == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::Create(*context, Widen(*descriptor), result);
}

// Arrays end when nothing that runs can use them.
template <typename Handle>
CUresult Destroy(Handle handle) {
  if (sim::stream::WaitForContext != nullptr) sim::stream::WaitForContext(0);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  return rc == CUDA_SUCCESS ? sim::array::Destroy(handle) : rc;
}

CUresult Describe(CUarray handle, const void* result, CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::Describe(handle, descriptor);
}

unsigned Narrow(size_t value) { return static_cast<unsigned>(value); }  // extents have 17 bits

}  // namespace

extern "C" {

CUresult cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  SIM_CALL(cuArrayCreate, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  SIM_CALL(cuArrayCreate_v2, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  SIM_CALL(cuArray3DCreate, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  SIM_CALL(cuArray3DCreate_v2, pHandle, pAllocateArray);
  return Create(pHandle, pAllocateArray);
}

CUresult cuArrayDestroy(CUarray hArray) {
  SIM_CALL(cuArrayDestroy, hArray);
  return Destroy(hArray);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArrayGetDescriptor, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc != CUDA_SUCCESS) return rc;
  *pArrayDescriptor = {.Width = Narrow(found.Width),
                       .Height = Narrow(found.Height),
                       .Format = found.Format,
                       .NumChannels = found.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArrayGetDescriptor_v2, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc != CUDA_SUCCESS) return rc;
  *pArrayDescriptor = {.Width = found.Width,
                       .Height = found.Height,
                       .Format = found.Format,
                       .NumChannels = found.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArray3DGetDescriptor, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc != CUDA_SUCCESS) return rc;
  *pArrayDescriptor = {.Width = Narrow(found.Width),
                       .Height = Narrow(found.Height),
                       .Depth = Narrow(found.Depth),
                       .Format = found.Format,
                       .NumChannels = found.NumChannels,
                       .Flags = found.Flags};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  SIM_CALL(cuArray3DGetDescriptor_v2, pArrayDescriptor, hArray);
  CUDA_ARRAY3D_DESCRIPTOR found = {};
  const CUresult rc = Describe(hArray, pArrayDescriptor, &found);
  if (rc == CUDA_SUCCESS) *pArrayDescriptor = found;
  return rc;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  SIM_CALL(cuMipmappedArrayCreate, pHandle, pMipmappedArrayDesc, numMipmapLevels);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::memory::Begin(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::CreateMipmap(*context, *pMipmappedArrayDesc, numMipmapLevels, pHandle);
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  SIM_CALL(cuMipmappedArrayGetLevel, pLevelArray, hMipmappedArray, level);
  DriverLock lock;
  Context* context = nullptr;
  const CUresult rc = sim::context::Current(&context);
  if (rc != CUDA_SUCCESS) return rc;
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return sim::array::GetLevel(hMipmappedArray, level, pLevelArray);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  SIM_CALL(cuMipmappedArrayDestroy, hMipmappedArray);
  return Destroy(hMipmappedArray);
}

}  // extern "C"
