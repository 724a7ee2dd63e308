// One way to hold memory per family, for the programs that cycle, hold and fill.
#pragma once

#include "sim_program.h"

namespace simtest {

// What a family holds; which members mean something is the family's affair.
struct Held {
  CUdeviceptr address;
  CUarray array;
  CUmipmappedArray mipmap;
  CUmemoryPool pool;
  CUmemGenericAllocationHandle physical;
  CUcontext context;
  void* host;
  uint64_t bytes;
};

using Take = CUresult (*)(uint64_t bytes, Held* held);
using Give = CUresult (*)(const Held& held);

struct Family {
  const char* name;
  Take take;
  Give give;
};

inline CUresult TakeLinear(uint64_t bytes, Held* held) {
  return cuMemAlloc_v2(&held->address, bytes);
}
inline CUresult GiveLinear(const Held& held) { return cuMemFree_v2(held.address); }

inline CUresult TakeLow(uint64_t bytes, Held* held) {
  CUdeviceptr_v1 address = 0;
  const CUresult rc = cuMemAlloc(&address, static_cast<unsigned>(bytes));
  held->address = address;
  return rc;
}
inline CUresult GiveLow(const Held& held) {
  return cuMemFree(static_cast<CUdeviceptr_v1>(held.address));
}

inline CUresult TakePitch(uint64_t bytes, Held* held) {
  size_t pitch = 0;
  return cuMemAllocPitch_v2(&held->address, &pitch, 1000, bytes / 1024, 4);
}

inline CUresult TakeManaged(uint64_t bytes, Held* held) {
  const CUresult rc = cuMemAllocManaged(&held->address, bytes, CU_MEM_ATTACH_GLOBAL);
  return rc == CUDA_SUCCESS ? cuMemPrefetchAsync(held->address, bytes, 0, nullptr) : rc;
}

inline CUresult TakeAsync(uint64_t bytes, Held* held) {
  return cuMemAllocAsync(&held->address, bytes, nullptr);
}
inline CUresult GiveAsync(const Held& held) {
  const CUresult rc = cuMemFreeAsync(held.address, nullptr);
  return rc == CUDA_SUCCESS ? cuStreamSynchronize(nullptr) : rc;
}
inline CUresult GiveAsyncPlainly(const Held& held) {
  const CUresult rc = cuMemFree_v2(held.address);
  return rc == CUDA_SUCCESS ? cuCtxSynchronize() : rc;
}

inline CUresult TakePool(uint64_t bytes, Held* held) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUresult rc = cuMemPoolCreate(&held->pool, &props);
  if (rc != CUDA_SUCCESS) return rc;
  return cuMemAllocFromPoolAsync(&held->address, bytes, held->pool, nullptr);
}
// The pool goes first: it must live on until its last allocation came back.
inline CUresult GivePool(const Held& held) {
  const CUresult rc = cuMemPoolDestroy(held.pool);
  return rc == CUDA_SUCCESS ? cuMemFreeAsync(held.address, nullptr) : rc;
}

inline CUmemAllocationProp PropOn(CUmemLocationType type) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = type;
  return prop;
}

inline CUresult TakeVirtualOn(CUmemLocationType type, uint64_t bytes, Held* held) {
  const CUmemAllocationProp prop = PropOn(type);
  held->bytes = bytes;
  const CUresult rc = cuMemCreate(&held->physical, bytes, &prop, 0);
  if (rc != CUDA_SUCCESS) return rc;
  MUST(cuMemAddressReserve(&held->address, bytes, 0, 0, 0));
  MUST(cuMemMap(held->address, bytes, 0, held->physical, 0));
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return cuMemSetAccess(held->address, bytes, &access, 1);
}
inline CUresult TakeVirtual(uint64_t bytes, Held* held) {
  return TakeVirtualOn(CU_MEM_LOCATION_TYPE_DEVICE, bytes, held);
}
inline CUresult TakeVirtualHost(uint64_t bytes, Held* held) {
  return TakeVirtualOn(CU_MEM_LOCATION_TYPE_HOST, bytes, held);
}
// Released before it is unmapped: the mapping alone keeps it.
inline CUresult GiveVirtual(const Held& held) {
  MUST(cuMemRelease(held.physical));
  MUST(cuMemUnmap(held.address, held.bytes));
  return cuMemAddressFree(held.address, held.bytes);
}

inline CUDA_ARRAY3D_DESCRIPTOR FloatArray(size_t width, size_t height, size_t depth,
                                          unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
  descriptor.Width = width;
  descriptor.Height = height;
  descriptor.Depth = depth;
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 1;
  descriptor.Flags = flags;
  return descriptor;
}
// 1024 floats are 4 KiB, so rows, slices and layers count off the bytes asked for.
inline CUresult TakeArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Held* held) {
  return cuArray3DCreate_v2(&held->array, &descriptor);
}
inline CUresult TakeArray1D(uint64_t, Held* held) {
  return TakeArray(FloatArray(131072, 0, 0, 0), held);
}
inline CUresult TakeArray2D(uint64_t bytes, Held* held) {
  return TakeArray(FloatArray(1024, bytes / 4096, 0, 0), held);
}
inline CUresult TakeArray3D(uint64_t bytes, Held* held) {
  return TakeArray(FloatArray(1024, 64, bytes / 4096 / 64, 0), held);
}
inline CUresult TakeLayered(uint64_t bytes, Held* held) {
  return TakeArray(FloatArray(1024, 64, bytes / 4096 / 64, CUDA_ARRAY3D_LAYERED), held);
}
inline CUresult TakeCubemap(uint64_t, Held* held) {
  return TakeArray(FloatArray(512, 512, 6, CUDA_ARRAY3D_CUBEMAP), held);
}
inline CUresult GiveArray(const Held& held) { return cuArrayDestroy(held.array); }

inline CUresult TakeMipmap(uint64_t bytes, Held* held) {
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = FloatArray(1024, bytes / 4096, 0, 0);
  return cuMipmappedArrayCreate(&held->mipmap, &descriptor, 32);
}
inline CUresult GiveMipmap(const Held& held) { return cuMipmappedArrayDestroy(held.mipmap); }

inline CUresult TakeSparse(uint64_t bytes, Held* held) {
  return TakeArray(FloatArray(1024, bytes / 4096, 0, CUDA_ARRAY3D_SPARSE), held);
}

inline CUresult TakeHost(uint64_t bytes, Held* held) {
  return cuMemHostAlloc(&held->host, bytes, 0);
}
inline CUresult GiveHost(const Held& held) { return cuMemFreeHost(held.host); }

inline CUresult TakeRegistered(uint64_t bytes, Held* held) {
  held->host = aligned_alloc(4096, bytes);
  return cuMemHostRegister_v2(held->host, bytes, 0);
}
inline CUresult GiveRegistered(const Held& held) {
  const CUresult rc = cuMemHostUnregister(held.host);
  free(held.host);
  return rc;
}

inline CUresult TakeHeap(uint64_t bytes, Held*) {
  return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, bytes + 8 * kMiB);
}
inline CUresult GiveHeap(const Held&) { return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB); }

inline CUresult TakeContext(uint64_t, Held* held) {
  const CUresult rc = cuCtxCreate_v2(&held->context, 0, 0);
  return rc == CUDA_SUCCESS ? cuCtxPopCurrent_v2(nullptr) : rc;
}
inline CUresult GiveContext(const Held& held) { return cuCtxDestroy_v2(held.context); }

inline CUresult TakePrimary(uint64_t, Held* held) {
  return cuDevicePrimaryCtxRetain(&held->context, 0);
}
inline CUresult GivePrimary(const Held&) { return cuDevicePrimaryCtxRelease_v2(0); }

inline constexpr Family kFamilies[] = {
    {"linear", TakeLinear, GiveLinear},
    {"low", TakeLow, GiveLow},
    {"pitch", TakePitch, GiveLinear},
    {"managed", TakeManaged, GiveLinear},
    {"async", TakeAsync, GiveAsync},
    {"async_freed_plainly", TakeAsync, GiveAsyncPlainly},
    {"pool", TakePool, GivePool},
    {"virtual", TakeVirtual, GiveVirtual},
    {"virtual_host", TakeVirtualHost, GiveVirtual},
    {"array1d", TakeArray1D, GiveArray},
    {"array2d", TakeArray2D, GiveArray},
    {"array3d", TakeArray3D, GiveArray},
    {"layered", TakeLayered, GiveArray},
    {"cubemap", TakeCubemap, GiveArray},
    {"mipmap", TakeMipmap, GiveMipmap},
    {"sparse", TakeSparse, GiveArray},
    {"host", TakeHost, GiveHost},
    {"registered", TakeRegistered, GiveRegistered},
    {"heap", TakeHeap, GiveHeap},
    {"context", TakeContext, GiveContext},
    {"primary", TakePrimary, GivePrimary},
};

inline const Family& FamilyNamed(const char* name) {
  for (const Family& family : kFamilies) {
    if (strcmp(family.name, name) == 0) return family;
  }
  fprintf(stderr, "no family '%s'\n", name);
  exit(2);
}

}  // namespace simtest
