// Sparse and deferred-mapping arrays: what they need, and mapping physical memory to them.
//
// A mapping keeps its physical memory alive until it is unmapped or the array ends; which bytes it
// stands for is not modelled, so copies from and to such arrays are refused.
#include "cuda/arrays/array.h"
#include "cuda/memory/vmm.h"
#include "machine/calls.h"

namespace sim::array {
namespace {

constexpr uint64_t kTileBytes = 64 << 10;

bool HasFlag(const Storage& storage, unsigned flag) {
  return (storage.descriptor.Flags & flag) != 0;
}

// First level that is smaller than a tile in some direction: it and all behind share the mip tail.
unsigned FirstTailLevel(const Storage& storage) {
  const Tile tile = TileOf(storage.shape);
  unsigned level = 0;
  for (; level < storage.level_count; ++level) {
    const Shape shape = LevelOf(storage.shape, level);
    if (shape.width < tile.width || shape.height < tile.height || shape.depth < tile.depth) break;
  }
  return level;
}

CUresult WriteSparseProperties(const Storage& storage, CUDA_ARRAY_SPARSE_PROPERTIES* result) {
  if (result == nullptr || !HasFlag(storage, CUDA_ARRAY3D_SPARSE)) return CUDA_ERROR_INVALID_VALUE;
  const Tile tile = TileOf(storage.shape);
  const bool has_tail = storage.level_count > 1;  // an array that is no mipmap tells zeros
  const unsigned first = has_tail ? FirstTailLevel(storage) : 0;
  *result = {};
  result->tileExtent.width = tile.width;
  result->tileExtent.height = tile.height;
  result->tileExtent.depth = tile.depth;
  result->miptailFirstLevel = first;
  result->miptailSize = has_tail && first < storage.level_count ? kTileBytes : 0;
  return CUDA_SUCCESS;
}

// The driver does not look at the device that it is given.
CUresult WriteRequirements(const Storage& storage, CUDA_ARRAY_MEMORY_REQUIREMENTS* result) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!HasFlag(storage, CUDA_ARRAY3D_DEFERRED_MAPPING)) return CUDA_ERROR_INVALID_VALUE;
  *result = {};
  result->size = heap::InGranules(LevelOffset(storage, storage.level_count));
  result->alignment = kTileBytes;
  return CUDA_SUCCESS;
}

// Names the part of an array that one map info is about; different parts, different numbers.
uint64_t PlaceOf(const CUarrayMapInfo& info) {
  uint64_t words[6] = {static_cast<uint64_t>(info.subresourceType), 0, 0, 0, 0, 0};
  if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) {
    const auto& level = info.subresource.sparseLevel;
    words[1] = level.level;
    words[2] = level.layer;
    words[3] = level.offsetX;
    words[4] = level.offsetY;
    words[5] = level.offsetZ;
  } else {
    words[1] = info.subresource.miptail.layer;
    words[2] = info.subresource.miptail.offset;
  }
  uint64_t hash = 14695981039346656037u;  // FNV-1a, by words
  for (const uint64_t word : words) hash = (hash ^ word) * 1099511628211u;
  return hash;
}

Storage* StorageOf(const CUarrayMapInfo& info) {
  if (info.resourceType == CU_RESOURCE_TYPE_ARRAY) {
    Array* array = Find(info.resource.array);
    return array != nullptr ? array::StorageOf(array) : nullptr;
  }
  Mipmap* mipmap =
      info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY ? Find(info.resource.mipmap) : nullptr;
  return mipmap != nullptr ? &mipmap->storage : nullptr;
}

void Unmap(Storage* storage, uint64_t place) {
  for (size_t index = 0; index < storage->mappings.size(); ++index) {
    if (storage->mappings[index].place != place) continue;
    vmm::DropMapping(storage->mappings[index].handle);
    storage->mappings.Erase(index);
    return;
  }
}

CUresult Check(const CUarrayMapInfo& info) {
  const Storage* storage = StorageOf(info);
  const bool known_type = info.memOperationType == CU_MEM_OPERATION_TYPE_MAP ||
                          info.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP;
  if (storage == nullptr || storage->has_block || !known_type ||
      info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC || info.flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (info.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) return CUDA_SUCCESS;
  return vmm::Find(info.memHandle.memHandle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Perform(const CUarrayMapInfo& info) {
  Storage* storage = StorageOf(info);
  const uint64_t place = PlaceOf(info);
  if (info.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
    Unmap(storage, place);
    return CUDA_SUCCESS;
  }
  const uint64_t handle = info.memHandle.memHandle;
  if (!storage->mappings.Reserve(storage->mappings.size() + 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  vmm::AddMapping(handle);
  Unmap(storage, place);  // mapping anew replaces what was there
  storage->mappings.Push({place, handle});
  return CUDA_SUCCESS;
}

// All are checked before any is performed.
CUresult MapList(const CUarrayMapInfo* list, unsigned count, CUstream stream, bool per_thread) {
  DriverLock lock;
  int device = 0;
  CUresult rc = CUDA_SUCCESS;
  if (stream::DeviceOf != nullptr) rc = stream::DeviceOf(stream, per_thread, &device);
  if (rc != CUDA_SUCCESS) return rc;
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < count; ++index) {
    rc = Check(list[index]);
    if (rc != CUDA_SUCCESS) return rc;
  }
  for (unsigned index = 0; index < count; ++index) {
    rc = Perform(list[index]);
    if (rc != CUDA_SUCCESS) return rc;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sim::array

extern "C" {

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties, CUarray array) {
  SIM_CALL(cuArrayGetSparseProperties, sparseProperties, array);
  sim::DriverLock lock;
  sim::array::Array* found = sim::array::Find(array);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return sim::array::WriteSparseProperties(*sim::array::StorageOf(found), sparseProperties);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties,
                                             CUmipmappedArray mipmap) {
  SIM_CALL(cuMipmappedArrayGetSparseProperties, sparseProperties, mipmap);
  sim::DriverLock lock;
  const sim::array::Mipmap* found = sim::array::Find(mipmap);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return sim::array::WriteSparseProperties(found->storage, sparseProperties);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                      CUarray array, CUdevice device) {
  SIM_CALL(cuArrayGetMemoryRequirements, memoryRequirements, array, device);
  sim::DriverLock lock;
  sim::array::Array* found = sim::array::Find(array);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return sim::array::WriteRequirements(*sim::array::StorageOf(found), memoryRequirements);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) {
  SIM_CALL(cuMipmappedArrayGetMemoryRequirements, memoryRequirements, mipmap, device);
  sim::DriverLock lock;
  const sim::array::Mipmap* found = sim::array::Find(mipmap);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return sim::array::WriteRequirements(found->storage, memoryRequirements);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count, CUstream hStream) {
  SIM_CALL(cuMemMapArrayAsync, mapInfoList, count, hStream);
  return sim::array::MapList(mapInfoList, count, hStream, /*per_thread=*/false);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* mapInfoList, unsigned int count,
                                 CUstream hStream) {
  SIM_CALL(cuMemMapArrayAsync_ptsz, mapInfoList, count, hStream);
  return sim::array::MapList(mapInfoList, count, hStream, /*per_thread=*/true);
}

}  // extern "C"
