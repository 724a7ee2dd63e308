// link: cuda
// What pointer attributes say of memory of each kind.
#include "support/sim_program.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

template <typename Value = unsigned>
Value Ask(CUpointer_attribute attribute, CUdeviceptr address) {
  Value value = {};
  MUST(cuPointerGetAttribute(&value, attribute, address));
  return value;
}

}  // namespace

int main() {
  UseDevice(0);
  Facts facts;
  CUdeviceptr linear = 0;
  CUdeviceptr managed = 0;
  CUdeviceptr pooled = 0;
  void* host = nullptr;
  MUST(cuMemAlloc_v2(&linear, 5000));
  MUST(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL));
  MUST(cuMemAllocAsync(&pooled, 5000, nullptr));
  MUST(cuMemHostAlloc(&host, 5000, 0));
  facts.Say("linear type", Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, linear));
  facts.Say("linear managed", Ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, linear));
  facts.Say("linear ipc", Ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, linear));
  facts.Say("linear size", Ask<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, linear + 100));
  facts.Say("linear offset",
            Ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, linear + 100) - linear);
  facts.Say("managed type", Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, managed));
  facts.Say("managed managed", Ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
  facts.Say("managed host",
            Ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, managed) == managed);
  facts.Say("pool ipc", Ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pooled));
  facts.Say("pool has pool",
            Ask<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled) != nullptr);
  const auto host_address = reinterpret_cast<CUdeviceptr>(host);
  facts.Say("host type", Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host_address));
  CUdeviceptr seen = 0;
  MUST(cuMemHostGetDevicePointer_v2(&seen, host, 0));
  facts.Say("host same", seen == host_address);
  unsigned type = 77;
  const auto stack = reinterpret_cast<CUdeviceptr>(&type);
  facts.Code("unknown", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, stack));
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* results[] = {&type};
  facts.Code("unknown of many", cuPointerGetAttributes(1, attributes, results, stack));
  facts.Say("unknown type", type);
  return 0;
}
