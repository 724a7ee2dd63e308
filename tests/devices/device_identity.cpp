// link: cuda nvml
// The devices as CUDA numbers them: a list of {"uuid", "room": MiB that fit below the limit there}.
// With `hold`, a context and 1 GiB on the first device until stdin ends.
#include "support/fence_program.h"

namespace {

using simtest::kMiB;

void PrintUuid(CUdevice device) {
  CUuuid uuid = {};
  MUST(cuDeviceGetUuid_v2(&uuid, device));
  printf("{\"uuid\": \"GPU-");
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) printf("-");
    printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
  }
  printf("\"");
}

void PrintDevice(CUdevice device, bool with_room) {
  PrintUuid(device);
  if (with_room) {
    CUcontext context = nullptr;
    MUST(cuCtxCreate_v2(&context, 0, device));
    printf(", \"room\": %llu", static_cast<unsigned long long>(fencetest::RoomMiB()));
    MUST(cuCtxDestroy_v2(context));
  }
  printf("}");
}

int Hold() {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  MUST(cuCtxCreate_v2(&context, 0, 0));
  MUST(cuMemAlloc_v2(&address, 1024 * kMiB));
  printf("held\n");
  fflush(stdout);
  simtest::AwaitLine();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MUST(cuInit(0));
  if (argc > 1 && strcmp(argv[1], "hold") == 0) return Hold();
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  printf("[");
  for (int device = 0; device < count; ++device) {
    if (device > 0) printf(", ");
    PrintDevice(device, /*with_room=*/argc > 1 && strcmp(argv[1], "room") == 0);
  }
  printf("]\n");
  return 0;
}
