// link: nvml
// Reads a device's used bytes as fast as NVML answers, until stdin ends; prints the highest above
// the first reading, and how many readings there were. Says "enough" on stderr when they are a
// hundred. Meant to run without the library: what the machine holds, not what anybody believes.
#include <poll.h>

#include <algorithm>
#include <cstdio>

#include "driver_abi.h"

namespace {

constexpr int kEnough = 100;

unsigned long long UsedBytes(nvmlDevice_t device) {
  nvmlMemory_v2_t memory = {};
  memory.version = static_cast<unsigned>(sizeof(memory)) | 2u << 24;
  return nvmlDeviceGetMemoryInfo_v2(device, &memory) == NVML_SUCCESS ? memory.used : 0;
}

}  // namespace

int main() {
  nvmlDevice_t device = nullptr;
  if (nvmlInit_v2() != NVML_SUCCESS) return 1;
  if (nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS) return 1;
  unsigned long long highest = UsedBytes(device);
  unsigned long long readings = 0;
  puts("ready");
  fflush(stdout);
  for (pollfd input = {0, POLLIN, 0}; poll(&input, 1, 0) == 0; ++readings) {
    highest = std::max(highest, UsedBytes(device));
    if (readings == kEnough) fputs("enough\n", stderr);
  }
  printf("%llu %llu\n", highest, readings);
  return 0;
}
