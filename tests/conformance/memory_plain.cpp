// link: cuda
// flags: -Wl,-z,lazy
// Facts: linear, pitched and managed device memory; what is refused and with which code; what a
// pointer knows about itself.

#include <cstring>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

void Ask(Facts& facts, const char* name, size_t bytes) {
  CUdeviceptr memory = kPoison;
  const CUresult code = cuMemAlloc_v2(&memory, bytes);
  facts.Refused(name, code, Left(memory));
}

void RefusedRequests(Facts& facts) {
  CUdeviceptr memory = 0;
  Ask(facts, "alloc.zero", 0);
  Ask(facts, "alloc.beyond_total", 2 * TotalBytes());
  Ask(facts, "alloc.just_beyond_total", TotalBytes() + 1);
  Ask(facts, "alloc.size_max", ~size_t{0});
  facts.Code("alloc.null", cuMemAlloc_v2(nullptr, kMib));

  facts.Code("free.null", cuMemFree_v2(0));
  facts.Code("free.garbage", cuMemFree_v2(0x1000));
  int on_stack = 0;
  facts.Code("free.host_address", cuMemFree_v2(reinterpret_cast<CUdeviceptr>(&on_stack)));
  cuMemAlloc_v2(&memory, 4 * kMib);
  facts.Code("free.interior", cuMemFree_v2(memory + kMib));
  facts.Code("free", cuMemFree_v2(memory));
  facts.Code("free.twice", cuMemFree_v2(memory));
  facts.Code("info.null_free", cuMemGetInfo_v2(nullptr, nullptr));
}

// What an allocation takes from the free memory, and where it lies.
void Granularity(Facts& facts) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUdeviceptr large = 0;
  const size_t before = FreeBytes();
  facts.Code("alloc.one_byte", cuMemAlloc_v2(&first, 1));
  facts.Number("alloc.one_byte_takes", DroppedSince(before));
  cuMemAlloc_v2(&second, 1);
  facts.Number("alloc.two_bytes_apart_take", DroppedSince(before));
  facts.Number("alloc.small_alignment_512", static_cast<long long>((first | second) % 512));
  facts.Is("alloc.small_ones_apart", first != second);
  facts.Measured("alloc.small_distance", static_cast<long long>(second - first));
  cuMemFree_v2(first);
  cuMemFree_v2(second);
  facts.Number("alloc.small_ones_freed_leave", DroppedSince(before));
  for (const size_t bytes : {kMib, 2 * kMib, 2 * kMib + 1, 3 * kMib, 32 * kMib, 33 * kMib}) {
    const size_t start = FreeBytes();
    cuMemAlloc_v2(&large, bytes);
    facts.Number("alloc.takes." + std::to_string(bytes), DroppedSince(start));
    cuMemFree_v2(large);
    facts.Number("alloc.freed_leaves." + std::to_string(bytes), DroppedSince(start));
  }
}

void AskPitched(Facts& facts, const std::string& name, size_t width, size_t height,
                unsigned element_bytes) {
  CUdeviceptr memory = kPoison;
  size_t pitch_bytes = kPoison;
  const CUresult code = cuMemAllocPitch_v2(&memory, &pitch_bytes, width, height, element_bytes);
  facts.Code("pitch." + name, code);
  if (code == CUDA_SUCCESS) {
    cuMemFree_v2(memory);
    return;
  }
  facts.Text("pitch." + name + ".leaves", std::string(Left(memory)) + " " + Left(pitch_bytes));
}

void Pitched(Facts& facts) {
  CUdeviceptr memory = 0;
  size_t pitch_bytes = 0;
  AskPitched(facts, "zero_width", 0, 4, 4);
  AskPitched(facts, "zero_height", 4, 0, 4);
  AskPitched(facts, "beyond_total", TotalBytes(), 4, 4);
  for (const unsigned element_bytes : {0u, 1u, 2u, 3u, 32u}) {
    AskPitched(facts, "element_bytes." + std::to_string(element_bytes), 512, 4, element_bytes);
  }
  facts.Code("pitch.null_pitch", cuMemAllocPitch_v2(&memory, nullptr, 512, 4, 4));
  for (const size_t width : {1, 511, 512, 513, 1000, 4096, 4097, 100000}) {
    cuMemAllocPitch_v2(&memory, &pitch_bytes, width, 16, 4);
    facts.Number("pitch.of_width." + std::to_string(width), static_cast<long long>(pitch_bytes));
    cuMemFree_v2(memory);
  }
  const size_t before = FreeBytes();
  cuMemAllocPitch_v2(&memory, &pitch_bytes, 513, 8192, 4);
  facts.Number("pitch.takes_pitch_times_height", DroppedSince(before));
  size_t range_bytes = 0;
  cuMemGetAddressRange_v2(nullptr, &range_bytes, memory);
  facts.Number("pitch.range", static_cast<long long>(range_bytes));
  cuMemFree_v2(memory);
}

void Managed(Facts& facts) {
  CUdeviceptr memory = 0;
  for (const unsigned flags : {0u, 1u, 2u, 3u, 4u, 0x80u}) {
    memory = kPoison;
    const CUresult code = cuMemAllocManaged(&memory, kMib, flags);
    facts.Refused("managed.flags." + std::to_string(flags), code, Left(memory));
    if (code == CUDA_SUCCESS) cuMemFree_v2(memory);
  }
  memory = kPoison;
  const CUresult code = cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL);
  facts.Refused("managed.zero", code, Left(memory));
  facts.Code("managed.global", cuMemAllocManaged(&memory, 4 * kMib, CU_MEM_ATTACH_GLOBAL));
  unsigned is_managed = 77;
  unsigned type = 77;
  cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory);
  cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
  facts.Number("managed.is_managed", is_managed);
  facts.Number("managed.memory_type", type);
  facts.Code("managed.memset", cuMemsetD8_v2(memory, 0x5a, 4 * kMib));
  facts.Code("managed.synchronize", cuCtxSynchronize());
  facts.Is("managed.host_reads_device_writes", *reinterpret_cast<unsigned char*>(memory) == 0x5a);
  facts.Code("managed.free", cuMemFree_v2(memory));
}

void AddressRanges(Facts& facts) {
  CUdeviceptr memory = 0;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  cuMemAlloc_v2(&memory, 3 * kMib + 5);
  facts.Code("range.interior", cuMemGetAddressRange_v2(&base, &bytes, memory + kMib));
  facts.Is("range.base_is_the_pointer", base == memory);
  facts.Number("range.bytes_of_3MiB_and_5", static_cast<long long>(bytes));
  facts.Code("range.only_base", cuMemGetAddressRange_v2(&base, nullptr, memory));
  facts.Code("range.only_size", cuMemGetAddressRange_v2(nullptr, &bytes, memory));
  facts.Code("range.just_behind", cuMemGetAddressRange_v2(&base, &bytes, memory + 3 * kMib + 5));
  facts.Code("range.garbage", cuMemGetAddressRange_v2(&base, &bytes, 0x1000));
  cuMemFree_v2(memory);
  facts.Code("range.freed", cuMemGetAddressRange_v2(&base, &bytes, memory));
}

void PointerAttributes(Facts& facts, CUcontext context) {
  CUdeviceptr memory = 0;
  cuMemAlloc_v2(&memory, kMib);
  CUcontext owner = nullptr;
  unsigned type = 77;
  CUdeviceptr device_pointer = 0;
  void* host_pointer = nullptr;
  size_t range_bytes = 0;
  int ordinal = -77;
  facts.Code("pointer.context",
             cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  facts.Is("pointer.context_is_current", owner == context);
  facts.Code("pointer.type",
             cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  facts.Number("pointer.type_is", type);
  facts.Code(
      "pointer.device_pointer",
      cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 100));
  facts.Is("pointer.device_pointer_is_itself", device_pointer == memory + 100);
  facts.Code("pointer.host_pointer",
             cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
  facts.Code("pointer.range_size",
             cuPointerGetAttribute(&range_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory));
  facts.Number("pointer.range_size_is", static_cast<long long>(range_bytes));
  facts.Code("pointer.ordinal",
             cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  facts.Number("pointer.ordinal_is", ordinal);
  cuMemFree_v2(memory);
}

void PointersOfThePast(Facts& facts) {
  CUdeviceptr memory = 0;
  unsigned type = 77;
  unsigned long long id_one = 0;
  unsigned long long id_two = 0;
  cuMemAlloc_v2(&memory, kMib);
  facts.Code("pointer.buffer_id",
             cuPointerGetAttribute(&id_one, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  cuMemFree_v2(memory);
  facts.Code("pointer.freed",
             cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  cuMemAlloc_v2(&memory, kMib);
  cuPointerGetAttribute(&id_two, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory);
  facts.Is("pointer.buffer_ids_are_not_reused", id_one != id_two);
  cuMemFree_v2(memory);

  CUcontext owner = nullptr;
  int on_stack = 0;
  const auto plain_host = reinterpret_cast<CUdeviceptr>(&on_stack);
  facts.Code("pointer.plain_host",
             cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain_host));
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
  void* answers[] = {&type, &owner};
  type = 77;
  facts.Code("pointers.plain_host", cuPointerGetAttributes(2, wanted, answers, plain_host));
  facts.Number("pointers.plain_host_type", type);
  facts.Is("pointers.plain_host_has_no_context", owner == nullptr);
}

void MovingBytes(Facts& facts) {
  CUdeviceptr memory = 0;
  CUdeviceptr other = 0;
  std::vector<unsigned char> host(4 * kMib, 0x11);
  cuMemAlloc_v2(&memory, 2 * kMib);
  cuMemAlloc_v2(&other, 2 * kMib);
  facts.Code("copy.to_device", cuMemcpyHtoD_v2(memory, host.data(), kMib));
  facts.Code("copy.between", cuMemcpyDtoD_v2(other, memory, kMib));
  facts.Code("copy.unified", cuMemcpy(other + kMib, memory, 1024));
  std::memset(host.data(), 0, host.size());
  facts.Code("copy.to_host", cuMemcpyDtoH_v2(host.data(), other, kMib));
  facts.Is("copy.bytes_arrive", host[0] == 0x11 && host[kMib - 1] == 0x11 && host[kMib] == 0);
  facts.Code("copy.zero_bytes", cuMemcpyHtoD_v2(memory, host.data(), 0));
  facts.Code("copy.zero_bytes_null", cuMemcpyDtoH_v2(nullptr, 0, 0));
  facts.Code("copy.to_null", cuMemcpyHtoD_v2(0, host.data(), 16));
  facts.Code("copy.from_garbage", cuMemcpyDtoH_v2(host.data(), 0x1000, 16));
  facts.Code("memset.d8", cuMemsetD8_v2(memory, 0x22, kMib));
  facts.Code("memset.d32", cuMemsetD32_v2(memory, 0x33333333, 256));
  facts.Code("memset.d32_misaligned", cuMemsetD32_v2(memory + 1, 0, 4));
  facts.Code("memset.zero_bytes", cuMemsetD8_v2(memory, 0, 0));
  facts.Code("memset.garbage", cuMemsetD8_v2(0x1000, 0, 16));
  cuMemcpyDtoH_v2(host.data(), memory, kMib);
  facts.Is("memset.bytes_arrive", host[0] == 0x33 && host[1024] == 0x22);
  cuMemFree_v2(memory);
  cuMemFree_v2(other);
  facts.Code("copy.from_freed", cuMemcpyDtoH_v2(host.data(), memory, 16));
}

// The functions of the API before 3.2, whose sizes and pointers have 32 bits.
void FirstGeneration(Facts& facts) {
  unsigned memory = 77;
  unsigned free_bytes = 0;
  unsigned total_bytes = 0;
  const CUresult code = cuMemAlloc(&memory, 4096);
  facts.Code("v1.alloc", code);
  if (code == CUDA_SUCCESS) facts.Code("v1.free", cuMemFree(memory));
  facts.Code("v1.info", cuMemGetInfo(&free_bytes, &total_bytes));
  facts.Code("v1.device_total", cuDeviceTotalMem(&total_bytes, 0));
  facts.Is("v1.device_total_saturates", total_bytes == 0xffffffffu);
}

// Last of all: a driver that does not check would break the context with these.
void BeyondTheEnd(Facts& facts) {
  CUdeviceptr memory = 0;
  unsigned char host[16] = {};
  cuMemAlloc_v2(&memory, 2 * kMib);
  facts.Code("copy.beyond_the_end", cuMemcpyDtoH_v2(host, memory + 2 * kMib - 8, sizeof host));
  facts.Code("memset.beyond_the_end", cuMemsetD8_v2(memory + 2 * kMib - 8, 0, 16));
  facts.Code("memset.beyond_the_end.afterwards", cuCtxSynchronize());
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("memory_plain");
  const CUcontext context = UsePrimary(FirstDevice(facts));
  facts.Measured("total_bytes", static_cast<long long>(TotalBytes()));
  facts.Measured("taken_by_context_bytes", static_cast<long long>(TotalBytes() - FreeBytes()));
  RefusedRequests(facts);
  Granularity(facts);
  Pitched(facts);
  Managed(facts);
  AddressRanges(facts);
  PointerAttributes(facts, context);
  PointersOfThePast(facts);
  MovingBytes(facts);
  FirstGeneration(facts);
  BeyondTheEnd(facts);
  return 0;
}
