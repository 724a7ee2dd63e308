// link: cuda
// flags: -Wl,-z,lazy
// Facts: stream-ordered memory and its pools: what is used, what stays reserved and until when.

#include <string>

#include "gpu.h"

namespace conformance {
namespace {

unsigned long long PoolNumber(CUmemoryPool pool, CUmemPool_attribute attribute) {
  unsigned long long value = 0;
  cuMemPoolGetAttribute(pool, attribute, &value);
  return value;
}

void Report(Facts& facts, const std::string& moment, CUmemoryPool pool) {
  const auto number = [&](const char* name, CUmemPool_attribute attribute) {
    facts.Number(moment + name, static_cast<long long>(PoolNumber(pool, attribute)));
  };
  number(".reserved", CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  number(".reserved_high", CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
  number(".used", CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  number(".used_high", CU_MEMPOOL_ATTR_USED_MEM_HIGH);
}

CUresult SetThreshold(CUmemoryPool pool, unsigned long long bytes) {
  cuuint64_t value = bytes;
  return cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
}

void DefaultPool(Facts& facts, CUmemoryPool pool) {
  int reuse = -1;
  unsigned long long threshold = 77;
  facts.Code("default.threshold_read",
             cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  facts.Number("default.threshold", static_cast<long long>(threshold));
  cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &reuse);
  facts.Number("default.reuse_follow_event", reuse);
  cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse);
  facts.Number("default.reuse_opportunistic", reuse);
  facts.Code("default.attribute_nonsense",
             cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(99), &threshold));
  Report(facts, "default.at_start", pool);
  facts.Code("default.destroy", cuMemPoolDestroy(pool));
}

void UsedAndReserved(Facts& facts, CUmemoryPool pool) {
  Stream stream;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  const size_t before = FreeBytes();
  facts.Code("async.alloc", cuMemAllocAsync(&first, kMib, stream.get()));
  Report(facts, "async.after_1MiB", pool);
  facts.Number("async.after_1MiB.device_bytes", DroppedSince(before));
  cuMemAllocAsync(&second, kMib + 1, stream.get());
  Report(facts, "async.after_another_1MiB_and_1", pool);
  CUdeviceptr large = 0;
  cuMemAllocAsync(&large, 50 * kMib, stream.get());
  Report(facts, "async.after_another_50MiB", pool);
  cuStreamSynchronize(stream.get());
  facts.Code("async.free", cuMemFreeAsync(first, stream.get()));
  Report(facts, "async.after_free_before_synchronize", pool);
  cuMemFreeAsync(second, stream.get());
  cuMemFreeAsync(large, stream.get());
  Report(facts, "async.all_freed_before_synchronize", pool);
  cuStreamSynchronize(stream.get());
  Report(facts, "async.all_freed_after_synchronize", pool);
  facts.Number("async.all_freed_after_synchronize.device_bytes", DroppedSince(before));
}

void Threshold(Facts& facts, CUmemoryPool pool) {
  Stream stream;
  CUdeviceptr memory = 0;
  facts.Code("threshold.set", SetThreshold(pool, ~0ULL));
  cuMemAllocAsync(&memory, 100 * kMib, stream.get());
  cuMemFreeAsync(memory, stream.get());
  cuStreamSynchronize(stream.get());
  Report(facts, "threshold.max_keeps", pool);
  facts.Code("threshold.trim_to_60MiB", cuMemPoolTrimTo(pool, 60 * kMib));
  Report(facts, "threshold.after_trim_to_60MiB", pool);
  facts.Code("threshold.trim_to_0", cuMemPoolTrimTo(pool, 0));
  Report(facts, "threshold.after_trim_to_0", pool);

  cuMemAllocAsync(&memory, 20 * kMib, stream.get());
  cuStreamSynchronize(stream.get());
  facts.Code("threshold.trim_while_used", cuMemPoolTrimTo(pool, 0));
  Report(facts, "threshold.after_trim_while_used", pool);
  SetThreshold(pool, 0);
  cuMemFreeAsync(memory, stream.get());
  cuStreamSynchronize(stream.get());
  Report(facts, "threshold.back_at_0", pool);

  cuuint64_t value = 0;
  facts.Code("high.reset", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  facts.Number("high.used_after_reset",
               static_cast<long long>(PoolNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)));
  value = 5;
  facts.Code("high.set_to_5", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  facts.Code("used.set", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
}

// `used` after each step shows whether the pool has let go of the memory.
void Refusals(Facts& facts, CUmemoryPool pool) {
  Stream stream;
  CUdeviceptr memory = kPoison;
  const auto used = [&](const char* moment) {
    cuStreamSynchronize(stream.get());
    facts.Number(std::string("refusals.used_after_") + moment,
                 static_cast<long long>(PoolNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));
  };
  CUresult code = cuMemAllocAsync(&memory, 0, stream.get());
  facts.Refused("async.zero", code, Left(memory));
  facts.Code("async.null", cuMemAllocAsync(nullptr, kMib, stream.get()));
  memory = kPoison;
  code = cuMemAllocAsync(&memory, 2 * TotalBytes(), stream.get());
  facts.Refused("async.beyond_total", code, Left(memory));
  facts.Code("async.free_null", cuMemFreeAsync(0, stream.get()));
  facts.Code("async.free_garbage", cuMemFreeAsync(0x1000, stream.get()));
  cuMemAllocAsync(&memory, kMib, stream.get());
  facts.Code("async.free_interior", cuMemFreeAsync(memory + 4096, stream.get()));
  facts.Code("async.free_once", cuMemFreeAsync(memory, stream.get()));
  facts.Code("async.free_twice", cuMemFreeAsync(memory, stream.get()));
  used("free_twice");
  cuMemAlloc_v2(&memory, kMib);
  facts.Code("async.free_of_plain", cuMemFreeAsync(memory, stream.get()));
  cuStreamSynchronize(stream.get());
  facts.Code("async.free_of_plain_again", cuMemFree_v2(memory));
  cuMemAllocAsync(&memory, kMib, stream.get());
  facts.Code("plain_free_of_async", cuMemFree_v2(memory));
  facts.Code("plain_free_of_async_again", cuMemFree_v2(memory));
  used("plain_free");
  facts.Code("async.on_legacy_stream", cuMemAllocAsync(&memory, kMib, nullptr));
  facts.Code("async.free_on_another_stream", cuMemFreeAsync(memory, stream.get()));
  used("free_on_another_stream");
}

void Pointers(Facts& facts, CUmemoryPool pool) {
  Stream stream;
  CUdeviceptr memory = 0;
  cuMemAllocAsync(&memory, 3 * kMib + 5, stream.get());
  CUmemoryPool owner = nullptr;
  unsigned type = 77;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  facts.Code("pointer.pool",
             cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  facts.Is("pointer.pool_is_default", owner == pool);
  facts.Code("pointer.type",
             cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  facts.Number("pointer.type_is", type);
  facts.Code("pointer.range", cuMemGetAddressRange_v2(&base, &bytes, memory + 100));
  facts.Is("pointer.range_base", base == memory);
  facts.Number("pointer.range_bytes", static_cast<long long>(bytes));
  facts.Number("pointer.used_for_3MiB_and_5",
               static_cast<long long>(PoolNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));
  cuMemFreeAsync(memory, stream.get());
  cuStreamSynchronize(stream.get());
}

CUmemPoolProps DeviceProps(int device) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device;
  return props;
}

void RefusedPools(Facts& facts, CUdevice device) {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = DeviceProps(device);
  props.allocType = static_cast<CUmemAllocationType>(77);
  facts.Code("pool.bad_type", cuMemPoolCreate(&pool, &props));
  props = DeviceProps(4711);
  facts.Code("pool.bad_device", cuMemPoolCreate(&pool, &props));
  facts.Code("pool.null_props", cuMemPoolCreate(&pool, nullptr));
}

void OwnPool(Facts& facts, CUdevice device, CUmemoryPool default_pool) {
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps props = DeviceProps(device);
  const size_t before = FreeBytes();
  facts.Code("pool.create", cuMemPoolCreate(&pool, &props));
  facts.Number("pool.create_takes", DroppedSince(before));
  Stream stream;
  CUdeviceptr memory = kPoison;
  const CUresult code = cuMemAllocFromPoolAsync(&memory, 0, pool, stream.get());
  facts.Refused("pool.zero", code, Left(memory));
  facts.Code("pool.alloc", cuMemAllocFromPoolAsync(&memory, 5 * kMib, pool, stream.get()));
  Report(facts, "pool.after_5MiB", pool);
  facts.Number("pool.default_pool_unchanged",
               static_cast<long long>(PoolNumber(default_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));

  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CUmemLocation location = props.location;
  facts.Code("pool.access", cuMemPoolGetAccess(&access, pool, &location));
  facts.Number("pool.access_is", access);
  CUmemAccessDesc wanted{props.location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  facts.Code("pool.revoke_own_access", cuMemPoolSetAccess(pool, &wanted, 1));
  int fd = -1;
  facts.Code(
      "pool.export_without_handle_type",
      cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

  facts.Code("pool.make_current", cuDeviceSetMemPool(device, pool));
  CUmemoryPool current = nullptr;
  cuDeviceGetMemPool(&current, device);
  facts.Is("pool.is_current", current == pool);
  CUdeviceptr other = 0;
  cuMemAllocAsync(&other, kMib, stream.get());
  facts.Number("pool.serves_cuMemAllocAsync",
               static_cast<long long>(PoolNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)));
  facts.Code("pool.destroy_while_used", cuMemPoolDestroy(pool));
  cuDeviceGetMemPool(&current, device);
  facts.Is("pool.destroyed_current_falls_back", current == default_pool);
  facts.Code("pool.free_after_destroy", cuMemFreeAsync(memory, stream.get()));
  cuMemFreeAsync(other, stream.get());
  cuStreamSynchronize(stream.get());
  facts.Number("pool.all_gone_leaves", DroppedSince(before));
}

void BoundedPool(Facts& facts, CUdevice device) {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props = DeviceProps(device);
  props.maxSize = 64 * kMib;
  facts.Code("bounded.create", cuMemPoolCreate(&pool, &props));
  Stream stream;
  CUdeviceptr memory = kPoison;
  facts.Code("bounded.within", cuMemAllocFromPoolAsync(&memory, 32 * kMib, pool, stream.get()));
  CUdeviceptr beyond = kPoison;
  facts.Code("bounded.beyond", cuMemAllocFromPoolAsync(&beyond, 64 * kMib, pool, stream.get()));
  cuMemFreeAsync(memory, stream.get());
  cuStreamSynchronize(stream.get());
  facts.Code("bounded.destroy", cuMemPoolDestroy(pool));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("memory_async_pools");
  const CUdevice device = FirstDevice(facts);
  UsePrimary(device);
  CUmemoryPool pool = nullptr;
  cuDeviceGetDefaultMemPool(&pool, device);
  DefaultPool(facts, pool);
  UsedAndReserved(facts, pool);
  Threshold(facts, pool);
  Refusals(facts, pool);
  Pointers(facts, pool);
  RefusedPools(facts, device);
  OwnPool(facts, device, pool);
  BoundedPool(facts, device);
  return 0;
}
