// link: cuda
// The devices that are visible, in order: {"init": code, "devices": [{...}, ...]}.
#include "support/sim_program.h"

namespace {

void PrintDevice(int ordinal) {
  CUdevice device = 0;
  char name[64] = {};
  char bus[32] = {};
  CUuuid uuid = {};
  size_t bytes = 0;
  int sm_count = 0;
  int major = 0;
  CUdevice by_bus = -1;
  MUST(cuDeviceGet(&device, ordinal));
  MUST(cuDeviceGetName(name, sizeof(name), device));
  MUST(cuDeviceGetUuid_v2(&uuid, device));
  MUST(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
  MUST(cuDeviceGetByPCIBusId(&by_bus, bus));
  MUST(cuDeviceTotalMem_v2(&bytes, device));
  MUST(cuDeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  MUST(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  printf(
      "%s{\"name\": \"%s\", \"bus\": \"%s\", \"by_bus\": %d, \"bytes\": %zu, \"sms\": %d, "
      "\"major\": %d, \"uuid\": \"",
      ordinal > 0 ? ", " : "", name, bus, by_bus, bytes, sm_count, major);
  for (const char byte : uuid.bytes) printf("%02x", static_cast<unsigned char>(byte));
  printf("\"}");
}

}  // namespace

int main() {
  const CUresult rc = cuInit(0);
  int count = 0;
  if (rc == CUDA_SUCCESS) MUST(cuDeviceGetCount(&count));
  printf("{\"init\": %d, \"devices\": [", static_cast<int>(rc));
  for (int ordinal = 0; ordinal < count; ++ordinal) PrintDevice(ordinal);
  printf("]}\n");
  return 0;
}
