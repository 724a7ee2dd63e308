// link: cuda nvml
// flags: -Wl,-z,lazy
// Facts: NVML's manners: initialisation, sizes, versions, process lists, and what it says about the
// memory that the driver API hands out.

#include <cstring>
#include <string>
#include <vector>

#include "gpu.h"

namespace conformance {
namespace {

void BeforeInit(Facts& facts) {
  unsigned count = 77;
  nvmlDevice_t device = nullptr;
  char text[96] = "";
  facts.Code("before_init.count", nvmlDeviceGetCount_v2(&count));
  facts.Is("before_init.output_untouched", count == 77);
  facts.Code("before_init.handle", nvmlDeviceGetHandleByIndex_v2(0, &device));
  facts.Code("before_init.driver_version", nvmlSystemGetDriverVersion(text, sizeof text));
  facts.Code("before_init.nvml_version", nvmlSystemGetNVMLVersion(text, sizeof text));
  facts.Code("before_init.shutdown", nvmlShutdown());
  facts.Text("error.0", nvmlErrorString(NVML_SUCCESS));
  facts.Text("error.13", nvmlErrorString(NVML_ERROR_FUNCTION_NOT_FOUND));
  facts.Text("error.7", nvmlErrorString(NVML_ERROR_INSUFFICIENT_SIZE));
  facts.Text("error.12345", nvmlErrorString(static_cast<nvmlReturn_t>(12345)));
}

void InitCounts(Facts& facts) {
  unsigned count = 0;
  facts.Code("init", nvmlInit_v2());
  facts.Code("init.again", nvmlInit_v2());
  facts.Code("shutdown.first", nvmlShutdown());
  facts.Code("shutdown.first_leaves_it_usable", nvmlDeviceGetCount_v2(&count));
  facts.Code("shutdown.second", nvmlShutdown());
  facts.Code("shutdown.second_ends_it", nvmlDeviceGetCount_v2(&count));
  facts.Code("shutdown.too_often", nvmlShutdown());
  facts.Code("init.bad_flags", nvmlInitWithFlags(0x80000000u));
  facts.Code("init.v1", nvmlInit());
  facts.Code("count", nvmlDeviceGetCount_v2(&count));
  facts.Is("count.positive", count > 0);
  facts.Code("count.null", nvmlDeviceGetCount_v2(nullptr));
}

void Texts(Facts& facts, nvmlDevice_t device) {
  char text[128] = "";
  char tiny[4] = "zz";
  facts.Code("name", nvmlDeviceGetName(device, text, sizeof text));
  facts.Is("name.not_empty", text[0] != '\0');
  facts.Code("name.short_buffer", nvmlDeviceGetName(device, tiny, sizeof tiny));
  facts.Code("name.null", nvmlDeviceGetName(device, nullptr, 96));
  facts.Code("uuid", nvmlDeviceGetUUID(device, text, sizeof text));
  facts.Number("uuid.length", static_cast<long long>(std::strlen(text)));
  facts.Is("uuid.starts_with_GPU", std::strncmp(text, "GPU-", 4) == 0);
  nvmlDevice_t found = nullptr;
  facts.Code("handle_by_uuid", nvmlDeviceGetHandleByUUID(text, &found));
  facts.Is("handle_by_uuid.same", found == device);
  facts.Code("handle_by_uuid.unknown",
             nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000", &found));
  facts.Code("uuid.short_buffer", nvmlDeviceGetUUID(device, tiny, sizeof tiny));
  facts.Code("driver_version", nvmlSystemGetDriverVersion(text, sizeof text));
  facts.Code("driver_version.short_buffer", nvmlSystemGetDriverVersion(tiny, 2));
  nvmlPciInfo_t pci{};
  facts.Code("pci", nvmlDeviceGetPciInfo_v3(device, &pci));
  facts.Code("handle_by_bus", nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &found));
  facts.Is("handle_by_bus.same", found == device);
  facts.Code("handle_by_bus.unknown", nvmlDeviceGetHandleByPciBusId_v2("FFFF:FF:1F.0", &found));
  facts.Code("handle.beyond_last", nvmlDeviceGetHandleByIndex_v2(4711, &found));
  facts.Code("handle.null_device", nvmlDeviceGetName(nullptr, text, sizeof text));
  unsigned index = 77;
  facts.Code("index", nvmlDeviceGetIndex(device, &index));
  facts.Number("index.is", index);
  int cuda_version = 0;
  facts.Code("cuda_version", nvmlSystemGetCudaDriverVersion_v2(&cuda_version));
  int driver_version = 0;
  cuDriverGetVersion(&driver_version);
  facts.Is("cuda_version.as_driver_api", cuda_version == driver_version);
}

constexpr unsigned Version(size_t bytes, unsigned version) {
  return static_cast<unsigned>(bytes) | version << 24;
}

unsigned long long UsedBytes(nvmlDevice_t device) {
  nvmlMemory_t memory{};
  nvmlDeviceGetMemoryInfo(device, &memory);
  return memory.used;
}

void Memory(Facts& facts, nvmlDevice_t device) {
  nvmlMemory_t memory{};
  facts.Code("memory", nvmlDeviceGetMemoryInfo(device, &memory));
  facts.Is("memory.adds_up", memory.total == memory.used + memory.free);
  nvmlMemory_v2_t v2{};
  facts.Code("memory_v2.no_version", nvmlDeviceGetMemoryInfo_v2(device, &v2));
  v2.version = Version(sizeof v2, 9);
  facts.Code("memory_v2.wrong_version", nvmlDeviceGetMemoryInfo_v2(device, &v2));
  v2.version = Version(sizeof v2, 2);
  facts.Code("memory_v2", nvmlDeviceGetMemoryInfo_v2(device, &v2));
  facts.Is("memory_v2.same_total", v2.total == memory.total);
  facts.Is("memory_v2.adds_up", v2.total == v2.used + v2.free + v2.reserved);
  facts.Is("memory_v2.has_reserved", v2.reserved > 0);
  facts.Measured("memory.total", static_cast<long long>(memory.total));
  facts.Measured("memory.used", static_cast<long long>(memory.used));
  facts.Measured("memory_v2.reserved", static_cast<long long>(v2.reserved));

  const unsigned long long before_context = UsedBytes(device);
  UsePrimary(0);
  const unsigned long long with_context = UsedBytes(device);
  facts.Is("memory.context_is_seen", with_context > before_context);
  facts.Measured("memory.context_bytes", static_cast<long long>(with_context - before_context));
  CUdeviceptr block = 0;
  cuMemAlloc_v2(&block, 256 * kMib);
  facts.Number("memory.allocation_is_seen_at_once",
               static_cast<long long>(UsedBytes(device) - with_context));
  cuMemFree_v2(block);
  facts.Number("memory.free_is_seen_at_once",
               static_cast<long long>(UsedBytes(device) - with_context));
  nvmlDeviceGetMemoryInfo(device, &memory);
  facts.Is("memory.free_as_driver_api", memory.free == FreeBytes());
  facts.Is("memory.total_as_driver_api", memory.total == TotalBytes());
}

void Processes(Facts& facts, nvmlDevice_t device) {
  unsigned count = 0;
  facts.Code("processes.no_room", nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr));
  facts.Is("processes.no_room_tells_count", count > 0);
  facts.Code("processes.null_count",
             nvmlDeviceGetComputeRunningProcesses_v3(device, nullptr, nullptr));
  std::vector<nvmlProcessInfo_t> list(64);
  count = 64;
  facts.Code("processes", nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list.data()));
  bool listed = false;
  unsigned long long used_bytes = 0;
  for (unsigned i = 0; i < count && i < list.size(); ++i) {
    if (list[i].pid != static_cast<unsigned>(getpid())) continue;
    listed = true;
    used_bytes = list[i].usedGpuMemory;
  }
  facts.Is("processes.own_pid_listed", listed);
  facts.Measured("processes.own_bytes", static_cast<long long>(used_bytes));
  facts.Measured("processes.count", count);
  count = 64;
  facts.Code("graphics_processes",
             nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, list.data()));
  count = 0;
  facts.Code("processes_v2.no_room",
             nvmlDeviceGetComputeRunningProcesses_v2(device, &count, nullptr));
  count = 0;
  facts.Code("process_utilization.no_room",
             nvmlDeviceGetProcessUtilization(device, nullptr, &count, 0));
}

void Sensors(Facts& facts, nvmlDevice_t device) {
  nvmlUtilization_t utilization{};
  facts.Code("utilization", nvmlDeviceGetUtilizationRates(device, &utilization));
  facts.Is("utilization.is_percent", utilization.gpu <= 100 && utilization.memory <= 100);
  unsigned value = 0;
  unsigned current = 0;
  unsigned pending = 0;
  facts.Code("temperature", nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &value));
  facts.Code("power", nvmlDeviceGetPowerUsage(device, &value));
  facts.Code("clock", nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &value));
  facts.Code("fan", nvmlDeviceGetFanSpeed(device, &value));
  facts.Code("mig_mode", nvmlDeviceGetMigMode(device, &current, &pending));
  facts.Number("mig_mode.current", current);
  nvmlEnableState_t enabled{};
  facts.Code("persistence", nvmlDeviceGetPersistenceMode(device, &enabled));
  nvmlComputeMode_t mode{};
  facts.Code("compute_mode", nvmlDeviceGetComputeMode(device, &mode));
  facts.Number("compute_mode.is", mode);
  nvmlBrandType_t brand{};
  facts.Code("brand", nvmlDeviceGetBrand(device, &brand));
  int major = 0;
  int minor = 0;
  facts.Code("capability", nvmlDeviceGetCudaComputeCapability(device, &major, &minor));
  facts.Code("minor_number", nvmlDeviceGetMinorNumber(device, &value));
  unsigned sample_count = 0;
  nvmlValueType_t type{};
  facts.Code("samples.no_room", nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type,
                                                     &sample_count, nullptr));
  facts.Measured("samples.count", sample_count);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("nvml_basic");
  BeforeInit(facts);
  InitCounts(facts);
  nvmlDevice_t device = nullptr;
  facts.Code("handle", nvmlDeviceGetHandleByIndex_v2(0, &device));
  Texts(facts, device);
  FirstDevice(facts);
  Memory(facts, device);
  Processes(facts, device);
  Sensors(facts, device);
  facts.Code("shutdown", nvmlShutdown());
  return 0;
}
