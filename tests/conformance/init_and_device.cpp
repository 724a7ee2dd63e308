// link: cuda
// flags: -Wl,-z,lazy
// Facts: what the driver answers before cuInit, without a context, and about its devices.

#include <cstring>

#include "gpu.h"

namespace conformance {
namespace {

void BeforeInit(Facts& facts) {
  int version = -1;
  facts.Code("before_init.cuDriverGetVersion", cuDriverGetVersion(&version));
  facts.Is("before_init.version_known", version >= 11000);
  facts.Measured("driver_version", version);
  const char* text = nullptr;
  facts.Code("before_init.cuGetErrorName", cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  facts.Text("before_init.error_name", text != nullptr ? text : "(null)");
  facts.Code("before_init.cuGetErrorString", cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  facts.Code("before_init.cuGetErrorName.unknown",
             cuGetErrorName(static_cast<CUresult>(12345), &text));
  facts.Is("before_init.unknown_error_has_null_name", text == nullptr);

  int count = -77;
  CUdevice device = -77;
  facts.Code("before_init.cuDeviceGetCount", cuDeviceGetCount(&count));
  facts.Code("before_init.cuDeviceGet", cuDeviceGet(&device, 0));
  facts.Is("before_init.outputs_untouched", count == -77 && device == -77);

  CUcontext context = nullptr;
  CUdeviceptr memory = kPoison;
  size_t bytes = 77;
  int low = 0;
  int high = 0;
  CUstream stream = nullptr;
  CUmodule module = nullptr;
  facts.Code("before_init.cuCtxGetCurrent", cuCtxGetCurrent(&context));
  facts.Code("before_init.cuCtxCreate", cuCtxCreate_v2(&context, 0, 0));
  facts.Code("before_init.cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
  const CUresult refused = cuMemAlloc_v2(&memory, kMib);
  facts.Refused("before_init.cuMemAlloc", refused, Left(memory));
  facts.Code("before_init.cuMemFree", cuMemFree_v2(kPoison));
  facts.Code("before_init.cuMemGetInfo", cuMemGetInfo_v2(&bytes, &bytes));
  facts.Code("before_init.cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&low, &high));
  facts.Code("before_init.cuStreamCreate", cuStreamCreate(&stream, 0));
  facts.Code("before_init.cuModuleLoadData", cuModuleLoadData(&module, kKernels));
  facts.Code("before_init.cuLaunchKernel",
             cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  void* found = nullptr;
  facts.Code("before_init.cuGetProcAddress", cuGetProcAddress("cuInit", &found, 12000, 0));
  facts.Is("before_init.cuGetProcAddress.found", found != nullptr);
}

void Counting(Facts& facts, CUdevice first) {
  int count = 0;
  CUdevice device = -77;
  facts.Code("cuInit.again", cuInit(0));
  facts.Code("cuDeviceGetCount", cuDeviceGetCount(&count));
  facts.Is("cuDeviceGetCount.positive", count > 0);
  facts.Code("cuDeviceGetCount.null", cuDeviceGetCount(nullptr));
  facts.Is("first_device_is_zero", first == 0);
  facts.Code("cuDeviceGet.beyond_last", cuDeviceGet(&device, count));
  facts.Code("cuDeviceGet.negative", cuDeviceGet(&device, -1));
  facts.Code("cuDeviceGet.null", cuDeviceGet(nullptr, 0));
  facts.Is("cuDeviceGet.refused_leaves_output", device == -77);
}

void Identity(Facts& facts, CUdevice device) {
  char name[256] = "";
  char part[5] = "zzzz";
  facts.Code("cuDeviceGetName", cuDeviceGetName(name, sizeof name, device));
  facts.Is("cuDeviceGetName.not_empty", name[0] != '\0');
  facts.Code("cuDeviceGetName.short_buffer", cuDeviceGetName(part, 4, device));
  facts.Is("cuDeviceGetName.short_buffer_terminated", std::memchr(part, '\0', 4) != nullptr);
  facts.Is("cuDeviceGetName.short_buffer_is_prefix", std::strncmp(part, name, 3) == 0);
  // Not asked: a buffer of 0 bytes. It crashes the driver (580.159.04).
  facts.Code("cuDeviceGetName.bad_device", cuDeviceGetName(name, sizeof name, 4711));

  CUuuid uuid{};
  CUuuid uuid_v2{};
  facts.Code("cuDeviceGetUuid", cuDeviceGetUuid(&uuid, device));
  facts.Code("cuDeviceGetUuid_v2", cuDeviceGetUuid_v2(&uuid_v2, device));
  facts.Is("uuids_equal", std::memcmp(&uuid, &uuid_v2, sizeof uuid) == 0);
  const CUuuid zero{};
  facts.Is("uuid_not_zero", std::memcmp(&uuid, &zero, sizeof uuid) != 0);

  char bus[32] = "";
  CUdevice by_bus = -77;
  facts.Code("cuDeviceGetPCIBusId", cuDeviceGetPCIBusId(bus, sizeof bus, device));
  facts.Number("cuDeviceGetPCIBusId.length", static_cast<long long>(std::strlen(bus)));
  facts.Code("cuDeviceGetPCIBusId.short_buffer", cuDeviceGetPCIBusId(part, sizeof part, device));
  facts.Code("cuDeviceGetByPCIBusId", cuDeviceGetByPCIBusId(&by_bus, bus));
  facts.Is("cuDeviceGetByPCIBusId.same_device", by_bus == device);
  facts.Code("cuDeviceGetByPCIBusId.unknown", cuDeviceGetByPCIBusId(&by_bus, "ffff:ff:1f.0"));
  facts.Code("cuDeviceGetByPCIBusId.nonsense", cuDeviceGetByPCIBusId(&by_bus, "no bus"));

  size_t total_bytes = 0;
  facts.Code("cuDeviceTotalMem", cuDeviceTotalMem_v2(&total_bytes, device));
  facts.Code("cuDeviceTotalMem.null", cuDeviceTotalMem_v2(nullptr, device));
  facts.Code("cuDeviceTotalMem.bad_device", cuDeviceTotalMem_v2(&total_bytes, 4711));
  facts.Measured("total_bytes", static_cast<long long>(total_bytes));
}

int Attribute(CUdevice device, int attribute) {
  int value = -1;
  cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
  return value;
}

// Values differ from GPU to GPU and are recorded here; what callers branch on is compared below.
void Attributes(Facts& facts, CUdevice device) {
  int value = -77;
  facts.Code("attribute.zero", cuDeviceGetAttribute(&value, CUdevice_attribute(0), device));
  facts.Code("attribute.huge", cuDeviceGetAttribute(&value, CUdevice_attribute(100000), device));
  facts.Is("attribute.refused_leaves_output", value == -77);
  facts.Code("attribute.null", cuDeviceGetAttribute(nullptr, CUdevice_attribute(1), device));
  facts.Code("attribute.bad_device", cuDeviceGetAttribute(&value, CUdevice_attribute(1), 4711));
  int last_known = 0;
  for (int attribute = 1; attribute < 256; ++attribute) {
    const CUresult code =
        cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
    if (code != CUDA_SUCCESS) continue;
    last_known = attribute;
    facts.Measured("attribute." + std::to_string(attribute), value);
  }
  facts.Number("attribute.last_known", last_known);
}

void Promises(Facts& facts, CUdevice device) {
  struct Promise {
    const char* name;
    CUdevice_attribute attribute;
  };
  constexpr Promise kPromises[] = {
      {"unified_addressing", CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
      {"can_map_host_memory", CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
      {"managed_memory", CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
      {"concurrent_managed_access", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
      {"memory_pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
      {"virtual_memory_management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      {"cooperative_launch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
      {"stream_priorities", CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
      {"concurrent_kernels", CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
      {"host_register", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
      {"sparse_arrays", CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED},
      {"deferred_mapping_arrays", CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED},
      {"ipc_events", CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
      {"posix_handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
      {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
      {"compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
      {"warp_size", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
      {"max_threads_per_block", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
      {"max_grid_y", CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
  };
  for (const Promise& promise : kPromises) {
    facts.Number(std::string("device.") + promise.name, Attribute(device, promise.attribute));
  }
}

void OlderQuestions(Facts& facts, CUdevice device) {
  int major = 0;
  int minor = 0;
  facts.Code("cuDeviceComputeCapability", cuDeviceComputeCapability(&major, &minor, device));
  facts.Is("compute_capability_as_attribute",
           major == Attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
               minor == Attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  int peer = -1;
  facts.Code("cuDeviceCanAccessPeer.self", cuDeviceCanAccessPeer(&peer, device, device));
  facts.Number("can_access_itself_as_peer", peer);
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool pool = nullptr;
  facts.Code("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&default_pool, device));
  facts.Code("cuDeviceGetMemPool", cuDeviceGetMemPool(&pool, device));
  facts.Is("current_pool_is_default", default_pool != nullptr && pool == default_pool);
}

void WithoutContext(Facts& facts) {
  CUcontext context = reinterpret_cast<CUcontext>(kPoison);
  facts.Code("no_context.cuCtxGetCurrent", cuCtxGetCurrent(&context));
  facts.Is("no_context.current_is_null", context == nullptr);
  CUdevice device = -77;
  CUdeviceptr memory = kPoison;
  size_t bytes = 0;
  int low = 0;
  int high = 0;
  void* host = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  unsigned flags = 0;
  facts.Code("no_context.cuCtxGetDevice", cuCtxGetDevice(&device));
  facts.Code("no_context.cuCtxGetFlags", cuCtxGetFlags(&flags));
  facts.Code("no_context.cuCtxSynchronize", cuCtxSynchronize());
  const CUresult refused = cuMemAlloc_v2(&memory, kMib);
  facts.Refused("no_context.cuMemAlloc", refused, Left(memory));
  facts.Code("no_context.cuMemAlloc.zero", cuMemAlloc_v2(&memory, 0));
  facts.Code("no_context.cuMemAllocAsync", cuMemAllocAsync(&memory, kMib, nullptr));
  facts.Code("no_context.cuMemAllocManaged",
             cuMemAllocManaged(&memory, kMib, CU_MEM_ATTACH_GLOBAL));
  facts.Code("no_context.cuMemFree", cuMemFree_v2(kPoison));
  facts.Code("no_context.cuMemGetInfo", cuMemGetInfo_v2(&bytes, &bytes));
  facts.Code("no_context.cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&low, &high));
  facts.Code("no_context.cuMemHostAlloc", cuMemHostAlloc(&host, 4096, 0));
  facts.Code("no_context.cuStreamCreate", cuStreamCreate(&stream, 0));
  facts.Code("no_context.cuStreamSynchronize", cuStreamSynchronize(nullptr));
  facts.Code("no_context.cuEventCreate", cuEventCreate(&event, 0));
  facts.Code("no_context.cuModuleLoadData", cuModuleLoadData(&module, kKernels));
  facts.Code("no_context.cuLaunchKernel",
             cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CUgraph graph = nullptr;
  facts.Code("no_context.cuGraphCreate", cuGraphCreate(&graph, 0));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("init_and_device");
  BeforeInit(facts);
  facts.Code("cuInit.bad_flags", cuInit(1));
  const CUdevice device = FirstDevice(facts);
  Counting(facts, device);
  Identity(facts, device);
  Attributes(facts, device);
  Promises(facts, device);
  OlderQuestions(facts, device);
  WithoutContext(facts);
  return 0;
}
