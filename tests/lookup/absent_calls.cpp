// link: cuda nvml
// Calls functions that the running driver may lack, as a program linked against a newer one would.
#include <stdio.h>

#include "driver_abi.h"

int main() {
  int version = 0;
  const int known = cuDriverGetVersion(&version);
  CUdriverProcAddressQueryResult status{};
  void* found = nullptr;
  const int absent = cuGetProcAddress_v2("cuInit", &found, 12000, 0, &status);
  const int absent_tensor = cuCtxGetDevice_v2(nullptr, nullptr);
  const char* text = nvmlErrorString(NVML_SUCCESS);
  const int absent_nvml = nvmlDeviceGetUnrepairableMemoryFlag_v1(nullptr, nullptr);
  printf(
      "{\"version\": %d, \"known\": %d, \"proc_v2\": %d, \"ctx_v2\": %d, \"nvml\": %d, "
      "\"text\": \"%s\"}\n",
      version, known, absent, absent_tensor, absent_nvml, text);
  return 0;
}
