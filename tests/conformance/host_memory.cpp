// link: cuda
// flags: -Wl,-z,lazy
// Facts: pinned, mapped and registered host memory; none of it is device memory.

#include <cstdlib>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

CUdeviceptr AddressOf(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

void Allocating(Facts& facts) {
  void* host = reinterpret_cast<void*>(kPoison);
  const CUresult zero = cuMemHostAlloc(&host, 0, 0);
  facts.Refused("alloc.zero", zero, Left(host));
  facts.Code("alloc.bad_flags", cuMemHostAlloc(&host, 4096, 0x80));
  facts.Code("alloc.null", cuMemHostAlloc(nullptr, 4096, 0));
  const size_t before = FreeBytes();
  facts.Code("alloc", cuMemHostAlloc(&host, 8 * kMib, 0));
  facts.Number("alloc.takes_device_bytes", DroppedSince(before));
  facts.Number("alloc.alignment_4096", static_cast<long long>(AddressOf(host) % 4096));
  unsigned flags = 77;
  CUdeviceptr device = 0;
  facts.Code("alloc.flags", cuMemHostGetFlags(&flags, host));
  facts.Number("alloc.flags_are", flags);
  facts.Code("alloc.device_pointer", cuMemHostGetDevicePointer_v2(&device, host, 0));
  facts.Is("alloc.device_pointer_is_host_pointer", device == AddressOf(host));
  facts.Code("alloc.device_pointer_bad_flags", cuMemHostGetDevicePointer_v2(&device, host, 1));
  unsigned type = 77;
  facts.Code("alloc.type",
             cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, AddressOf(host)));
  facts.Number("alloc.type_is", type);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  facts.Code("alloc.range", cuMemGetAddressRange_v2(&base, &bytes, AddressOf(host)));
  facts.Code("free.interior", cuMemFreeHost(static_cast<char*>(host) + 4096));
  facts.Code("free.as_device_memory", cuMemFree_v2(AddressOf(host)));
  facts.Code("free", cuMemFreeHost(host));
  facts.Code("free.twice", cuMemFreeHost(host));
  facts.Code("free.null", cuMemFreeHost(nullptr));
  int on_stack = 0;
  facts.Code("free.garbage", cuMemFreeHost(&on_stack));
  facts.Code("alloc_host", cuMemAllocHost_v2(&host, 4096));
  cuMemHostGetFlags(&flags, host);
  facts.Number("alloc_host.flags_are", flags);
  cuMemFreeHost(host);
  for (const unsigned wanted :
       {CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_WRITECOMBINED}) {
    facts.Code("alloc.flag." + std::to_string(wanted), cuMemHostAlloc(&host, 4096, wanted));
    cuMemHostGetFlags(&flags, host);
    facts.Number("alloc.flag." + std::to_string(wanted) + ".flags_are", flags);
    cuMemFreeHost(host);
  }
}

void Registering(Facts& facts) {
  auto* host = static_cast<char*>(std::aligned_alloc(4096, 64 * 4096));
  unsigned flags = 77;
  CUdeviceptr device = 0;
  facts.Code("register.flags_before", cuMemHostGetFlags(&flags, host));
  facts.Code("register.device_pointer_before", cuMemHostGetDevicePointer_v2(&device, host, 0));
  facts.Code("register.zero", cuMemHostRegister_v2(host, 0, 0));
  facts.Code("register.null", cuMemHostRegister_v2(nullptr, 4096, 0));
  facts.Code("register.bad_flags", cuMemHostRegister_v2(host, 4096, 0x80));
  const size_t before = FreeBytes();
  facts.Code("register", cuMemHostRegister_v2(host, 16 * 4096, 0));
  facts.Number("register.takes_device_bytes", DroppedSince(before));
  facts.Code("register.again", cuMemHostRegister_v2(host, 16 * 4096, 0));
  facts.Code("register.overlapping", cuMemHostRegister_v2(host + 8 * 4096, 16 * 4096, 0));
  facts.Code("register.flags", cuMemHostGetFlags(&flags, host));
  facts.Number("register.flags_are", flags);
  facts.Code("register.device_pointer", cuMemHostGetDevicePointer_v2(&device, host + 100, 0));
  facts.Is("register.device_pointer_is_host_pointer", device == AddressOf(host) + 100);
  facts.Code("register.free_as_allocated", cuMemFreeHost(host));
  facts.Code("unregister.interior", cuMemHostUnregister(host + 4096));
  facts.Code("unregister", cuMemHostUnregister(host));
  facts.Code("unregister.twice", cuMemHostUnregister(host));
  facts.Code("register.odd_start_and_size", cuMemHostRegister_v2(host + 100, 1000, 0));
  facts.Code("unregister.odd_start", cuMemHostUnregister(host + 100));
  std::free(host);
  void* pinned = nullptr;
  cuMemHostAlloc(&pinned, 4096, 0);
  facts.Code("register.already_pinned", cuMemHostRegister_v2(pinned, 4096, 0));
  facts.Code("unregister.allocated", cuMemHostUnregister(pinned));
  cuMemFreeHost(pinned);
}

void Copying(Facts& facts) {
  unsigned char* host = nullptr;
  CUdeviceptr memory = 0;
  cuMemHostAlloc(reinterpret_cast<void**>(&host), kMib, CU_MEMHOSTALLOC_DEVICEMAP);
  cuMemAlloc_v2(&memory, kMib);
  host[0] = 0x42;
  facts.Code("copy.in", cuMemcpyHtoD_v2(memory, host, kMib));
  host[0] = 0;
  facts.Code("copy.out", cuMemcpyDtoH_v2(host, memory, kMib));
  facts.Is("copy.bytes_arrive", host[0] == 0x42);
  facts.Code("memset.mapped_host_memory", cuMemsetD8_v2(AddressOf(host), 0x17, kMib));
  cuCtxSynchronize();
  facts.Is("memset.mapped_host_memory_arrives", host[kMib - 1] == 0x17);
  cuMemFree_v2(memory);
  cuMemFreeHost(host);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("host_memory");
  UsePrimary(FirstDevice(facts));
  Allocating(facts);
  Registering(facts);
  Copying(facts);
  return 0;
}
