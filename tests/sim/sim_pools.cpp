// link: cuda
// What a memory pool reserves, uses, remembers and gives back.
#include "support/sim_program.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

uint64_t Read(CUmemoryPool pool, CUmemPool_attribute attribute) {
  uint64_t value = 0;
  MUST(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

uint64_t Reserved(CUmemoryPool pool) { return Read(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
uint64_t Used(CUmemoryPool pool) { return Read(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

void TryLimited(Facts* facts) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.maxSize = 8 * kMiB;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  MUST(cuMemPoolCreate(&pool, &props));
  facts->Code("beyond its size", cuMemAllocFromPoolAsync(&address, 33 * kMiB, pool, nullptr));
  facts->Code("within its size", cuMemAllocFromPoolAsync(&address, 8 * kMiB, pool, nullptr));
  // What cuMemFree gave back counts as used for ever.
  CUstream other = nullptr;
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  MUST(cuMemFree_v2(address));
  MUST(cuStreamSynchronize(other));
  facts->Say("used after plain free", Used(pool));
  facts->Code("in need of it", cuMemAllocFromPoolAsync(&address, 8 * kMiB, pool, other));
  facts->Say("used again", Used(pool));
  MUST(cuMemFree_v2(address));
  MUST(cuStreamSynchronize(nullptr));
  facts->Say("used in the end", Used(pool));
  MUST(cuStreamDestroy_v2(other));
  MUST(cuMemPoolDestroy(pool));
}

}  // namespace

int main() {
  UseDevice(0);
  Facts facts;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemAllocAsync(&address, 3 * kMiB, nullptr));
  facts.Say("used", Used(pool));
  facts.Say("reserved", Reserved(pool));
  MUST(cuMemFreeAsync(address, nullptr));
  facts.Say("used after free", Used(pool));
  facts.Say("reserved after free", Reserved(pool));
  MUST(cuStreamSynchronize(nullptr));
  facts.Say("reserved after sync", Reserved(pool));
  facts.Say("used peak", Read(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
  facts.Say("reserved peak", Read(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
  uint64_t threshold = ~uint64_t{0};
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  MUST(cuMemAllocAsync(&address, 3 * kMiB, nullptr));
  MUST(cuMemFreeAsync(address, nullptr));
  MUST(cuStreamSynchronize(nullptr));
  facts.Say("kept by threshold", Reserved(pool));
  MUST(cuMemPoolTrimTo(pool, 0));
  facts.Say("kept after trim", Reserved(pool));
  facts.Code("destroyed default", cuMemPoolDestroy(pool));
  TryLimited(&facts);
  return 0;
}
