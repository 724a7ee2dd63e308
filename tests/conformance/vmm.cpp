// link: cuda
// flags: -pthread -Wl,-z,lazy
// Facts: virtual memory management: granularity, what may be mapped where, and when bytes return.

#include <unistd.h>

#include <thread>

#include "child.h"
#include "gpu.h"

namespace conformance {
namespace {

CUmemAllocationProp DeviceProp(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

CUmemAccessDesc ReadWrite(CUdevice device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

size_t Granularity(Facts& facts, CUdevice device) {
  CUmemAllocationProp prop = DeviceProp(device);
  size_t minimum = 0;
  size_t recommended = 0;
  facts.Code("granularity",
             cuMemGetAllocationGranularity(&minimum, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  facts.Number("granularity.minimum", static_cast<long long>(minimum));
  facts.Number("granularity.recommended", static_cast<long long>(recommended));
  facts.Code("granularity.null_prop",
             cuMemGetAllocationGranularity(&minimum, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  prop.location.id = 4711;
  facts.Code("granularity.bad_device",
             cuMemGetAllocationGranularity(&minimum, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  prop = DeviceProp(device);
  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  facts.Code("granularity.bad_type",
             cuMemGetAllocationGranularity(&minimum, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return recommended;
}

void Creating(Facts& facts, CUdevice device, size_t grain) {
  const CUmemAllocationProp prop = DeviceProp(device);
  CUmemGenericAllocationHandle handle = kPoison;
  facts.Code("create.zero", cuMemCreate(&handle, 0, &prop, 0));
  facts.Code("create.odd_size", cuMemCreate(&handle, grain + 4096, &prop, 0));
  facts.Code("create.flags", cuMemCreate(&handle, grain, &prop, 1));
  facts.Code("create.null_prop", cuMemCreate(&handle, grain, nullptr, 0));
  const size_t beyond_total = (2 * TotalBytes() / grain) * grain;
  facts.Code("create.beyond_total", cuMemCreate(&handle, beyond_total, &prop, 0));
  CUmemAllocationProp bad = prop;
  bad.location.id = 4711;
  facts.Code("create.bad_device", cuMemCreate(&handle, grain, &bad, 0));
  facts.Is("create.refused_leaves_output", handle == kPoison);

  const size_t before = FreeBytes();
  facts.Code("create", cuMemCreate(&handle, 4 * grain, &prop, 0));
  facts.Number("create.takes_at_once", DroppedSince(before));
  CUmemAllocationProp back{};
  facts.Code("properties", cuMemGetAllocationPropertiesFromHandle(&back, handle));
  facts.Is("properties.as_created", back.type == prop.type &&
                                        back.location.type == prop.location.type &&
                                        back.location.id == prop.location.id);
  facts.Code("release", cuMemRelease(handle));
  facts.Number("release.unmapped_leaves", DroppedSince(before));
  facts.Code("release.null", cuMemRelease(0));
  facts.Text("release.twice", Ask({"release-twice"}));
}

void Reserving(Facts& facts, size_t grain) {
  CUdeviceptr range = kPoison;
  facts.Code("reserve.zero", cuMemAddressReserve(&range, 0, 0, 0, 0));
  facts.Code("reserve.odd_size", cuMemAddressReserve(&range, grain + 1, 0, 0, 0));
  facts.Code("reserve.odd_alignment", cuMemAddressReserve(&range, grain, 3, 0, 0));
  facts.Is("reserve.refused_leaves_output", range == kPoison);
  const size_t before = FreeBytes();
  facts.Code("reserve", cuMemAddressReserve(&range, 64 * grain, 16 * grain, 0, 0));
  facts.Is("reserve.aligned", range % (16 * grain) == 0);
  facts.Number("reserve.takes", DroppedSince(before));
  facts.Code("reserve.free_part", cuMemAddressFree(range, grain));
  facts.Code("reserve.free", cuMemAddressFree(range, 64 * grain));
  facts.Code("reserve.free_twice", cuMemAddressFree(range, 64 * grain));
  CUdeviceptr huge = 0;
  const size_t huge_bytes = (8 * TotalBytes() / grain) * grain;
  facts.Code("reserve.beyond_total", cuMemAddressReserve(&huge, huge_bytes, 0, 0, 0));
  cuMemAddressFree(huge, huge_bytes);
}

void MappingRules(Facts& facts, CUdevice device, size_t grain) {
  const CUmemAllocationProp prop = DeviceProp(device);
  const CUmemAccessDesc access = ReadWrite(device);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  cuMemCreate(&handle, 2 * grain, &prop, 0);
  cuMemAddressReserve(&range, 8 * grain, 0, 0, 0);
  facts.Code("map.unreserved", cuMemMap(0x10000000, 2 * grain, 0, handle, 0));
  facts.Code("map.offset", cuMemMap(range, grain, grain, handle, 0));
  facts.Code("map.part", cuMemMap(range, grain, 0, handle, 0));
  cuMemUnmap(range, grain);
  facts.Code("map.more_than_created", cuMemMap(range, 4 * grain, 0, handle, 0));
  facts.Code("map.odd_address", cuMemMap(range + 4096, 2 * grain, 0, handle, 0));
  facts.Code("map", cuMemMap(range, 2 * grain, 0, handle, 0));
  facts.Code("map.onto_mapped", cuMemMap(range, 2 * grain, 0, handle, 0));
  facts.Code("map.second_place", cuMemMap(range + 4 * grain, 2 * grain, 0, handle, 0));
  unsigned long long flags = 77;
  facts.Code("access.before_set", cuMemGetAccess(&flags, &access.location, range));
  facts.Number("access.before_set_is", static_cast<long long>(flags));
  facts.Code("memset.before_access", cuMemsetD8_v2(range, 0, 16));
  facts.Code("access.set_unmapped", cuMemSetAccess(range + 2 * grain, grain, &access, 1));
  facts.Code("access.set", cuMemSetAccess(range, 2 * grain, &access, 1));
  cuMemGetAccess(&flags, &access.location, range);
  facts.Number("access.after_set_is", static_cast<long long>(flags));
  facts.Code("memset.after_access", cuMemsetD8_v2(range, 0, 2 * grain));
  facts.Code("free.mapped_as_plain", cuMemFree_v2(range));
  facts.Code("reserve.free_while_mapped", cuMemAddressFree(range, 8 * grain));
  facts.Code("unmap.part", cuMemUnmap(range, grain));
  facts.Code("unmap", cuMemUnmap(range, 2 * grain));
  facts.Code("unmap.twice", cuMemUnmap(range, 2 * grain));
  facts.Code("unmap.second_place", cuMemUnmap(range + 4 * grain, 2 * grain));
  facts.Code("rules.release", cuMemRelease(handle));
  facts.Code("rules.reserve_free", cuMemAddressFree(range, 8 * grain));
}

void Lifetimes(Facts& facts, CUdevice device, size_t grain) {
  const CUmemAllocationProp prop = DeviceProp(device);
  const CUmemAccessDesc access = ReadWrite(device);
  const size_t bytes = 16 * grain;
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle retained = 0;
  CUdeviceptr range = 0;
  cuMemAddressReserve(&range, bytes, 0, 0, 0);
  const size_t before = FreeBytes();
  cuMemCreate(&handle, bytes, &prop, 0);
  cuMemMap(range, bytes, 0, handle, 0);
  cuMemSetAccess(range, bytes, &access, 1);
  facts.Number("life.mapped_takes", DroppedSince(before));
  facts.Code("life.release_before_unmap", cuMemRelease(handle));
  facts.Number("life.released_still_takes", DroppedSince(before));
  facts.Code("life.released_still_works", cuMemsetD8_v2(range, 1, bytes));
  facts.Code("life.retain", cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(range)));
  facts.Is("life.retain_gives_same_handle", retained == handle);
  facts.Code("life.unmap", cuMemUnmap(range, bytes));
  facts.Number("life.retained_still_takes", DroppedSince(before));
  facts.Code("life.release_retained", cuMemRelease(retained));
  facts.Number("life.all_gone_leaves", DroppedSince(before));
  facts.Code("life.memset_unmapped", cuMemsetD8_v2(range, 1, 16));
  facts.Code("life.retain_unmapped",
             cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(range)));
  cuMemAddressFree(range, bytes);
}

void Pointers(Facts& facts, CUdevice device, size_t grain) {
  const CUmemAllocationProp prop = DeviceProp(device);
  const CUmemAccessDesc access = ReadWrite(device);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  unsigned type = 77;
  CUcontext context = reinterpret_cast<CUcontext>(kPoison);
  cuMemAddressReserve(&range, 4 * grain, 0, 0, 0);
  facts.Code("pointer.reserved_range", cuMemGetAddressRange_v2(&base, &bytes, range));
  cuMemCreate(&handle, grain, &prop, 0);
  cuMemMap(range, grain, 0, handle, 0);
  cuMemSetAccess(range, grain, &access, 1);
  facts.Code("pointer.mapped_range", cuMemGetAddressRange_v2(&base, &bytes, range + 100));
  facts.Is("pointer.mapped_base", base == range);
  facts.Is("pointer.mapped_range_is_the_mapping", bytes == grain);
  facts.Is("pointer.mapped_range_is_the_reservation", bytes == 4 * grain);
  facts.Code("pointer.type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range));
  facts.Number("pointer.type_is", type);
  facts.Code("pointer.context",
             cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, range));
  facts.Is("pointer.context_is_null", context == nullptr);
  cuMemUnmap(range, grain);
  cuMemRelease(handle);
  cuMemAddressFree(range, 4 * grain);
}

void Sharing(Facts& facts, CUdevice device, size_t grain) {
  CUmemAllocationProp prop = DeviceProp(device);
  CUmemGenericAllocationHandle plain = 0;
  CUmemGenericAllocationHandle shared = 0;
  CUmemGenericAllocationHandle imported = 0;
  int fd = -1;
  cuMemCreate(&plain, grain, &prop, 0);
  facts.Code("export.not_requested",
             cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  cuMemRelease(plain);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const size_t before = FreeBytes();
  facts.Code("export.create", cuMemCreate(&shared, 4 * grain, &prop, 0));
  facts.Code("export", cuMemExportToShareableHandle(&fd, shared,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const auto fd_value = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  facts.Code("import", cuMemImportFromShareableHandle(&imported, fd_value,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  facts.Is("import.same_handle", imported == shared);
  facts.Number("import.takes_nothing_more",
               DroppedSince(before) - static_cast<long long>(4 * grain));
  facts.Code("import.release_exported", cuMemRelease(shared));
  facts.Number("import.keeps_bytes", DroppedSince(before));
  facts.Code("import.release", cuMemRelease(imported));
  facts.Number("import.open_descriptor_keeps", DroppedSince(before));
  close(fd);
  facts.Number("import.all_gone_leaves", DroppedSince(before));
  facts.Code("import.nonsense",
             cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(-1),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

void Elsewhere(Facts& facts, CUdevice device, size_t grain) {
  const CUmemAllocationProp prop = DeviceProp(device);
  CUresult code = CUDA_SUCCESS;
  std::thread([&] {
    CUmemGenericAllocationHandle handle = 0;
    code = cuMemCreate(&handle, grain, &prop, 0);
    if (code == CUDA_SUCCESS) cuMemRelease(handle);
  }).join();
  facts.Code("create.without_a_current_context", code);

  CUmemAllocationProp host = prop;
  host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  host.location.id = 0;
  size_t host_grain = grain;
  CUmemGenericAllocationHandle handle = 0;
  facts.Code("host_numa.granularity",
             cuMemGetAllocationGranularity(&host_grain, &host, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  facts.Number("host_numa.granularity_is", static_cast<long long>(host_grain));
  const size_t before = FreeBytes();
  code = cuMemCreate(&handle, grain, &host, 0);
  facts.Code("host_numa.create", code);
  facts.Number("host_numa.takes_device_bytes", DroppedSince(before));
  if (code == CUDA_SUCCESS) cuMemRelease(handle);
  host.location.type = CU_MEM_LOCATION_TYPE_HOST;
  code = cuMemCreate(&handle, grain, &host, 0);
  facts.Code("host.create", code);
  if (code == CUDA_SUCCESS) cuMemRelease(handle);
}

// A handle of the past may be a crash: asked in a process of its own.
int ReleaseTwice() {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = DeviceProp(0);
  cuInit(0);
  UsePrimary(0);
  cuMemCreate(&handle, 2 * kMib, &prop, 0);
  cuMemRelease(handle);
  Tell(Name(cuMemRelease(handle)));
  return 0;
}

}  // namespace
}  // namespace conformance

int main(int argc, char**) {
  using namespace conformance;
  if (argc > 1) return ReleaseTwice();
  Facts facts("vmm");
  const CUdevice device = FirstDevice(facts);
  UsePrimary(device);
  const size_t grain = Granularity(facts, device);
  if (grain == 0) return 1;
  Creating(facts, device, grain);
  Reserving(facts, grain);
  MappingRules(facts, device, grain);
  Lifetimes(facts, device, grain);
  Pointers(facts, device, grain);
  Sharing(facts, device, grain);
  Elsewhere(facts, device, grain);
  return 0;
}
