// link: cuda
// Bytes arrive where they are sent, and nowhere else: 1 for each promise kept.
#include "support/sim_families.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kBytes = 4 * kMiB;

void FillHost(unsigned char* bytes, uint64_t count) {
  for (uint64_t index = 0; index < count; ++index) {
    bytes[index] = static_cast<unsigned char>(index * 7 + (index >> 8));
  }
}

void TryLinear(Facts* facts, unsigned char* sent, unsigned char* got) {
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, kBytes));
  MUST(cuMemcpyDtoH_v2(got, address, kBytes));
  uint64_t sum = 0;
  for (uint64_t index = 0; index < kBytes; ++index) sum += got[index];
  facts->Say("fresh memory is zero", sum == 0);
  MUST(cuMemcpyHtoD_v2(address, sent, kBytes));
  MUST(cuMemcpyDtoH_v2(got, address, kBytes));
  facts->Say("round trip", memcmp(sent, got, kBytes) == 0);
  MUST(cuMemsetD32_v2(address + 4096, 0x04030201, 1000));
  MUST(cuMemcpyDtoH_v2(got, address, 8192 + 4096));
  const unsigned char pattern[8] = {1, 2, 3, 4, 1, 2, 3, 4};
  facts->Say("pattern", memcmp(got + 4096 + 3992, pattern, 8) == 0 &&
                            memcmp(got, sent, 4096) == 0 &&
                            memcmp(got + 4096 + 4000, sent + 4096 + 4000, 4000) == 0);
  facts->Say("past the end", cuMemcpyHtoD_v2(address + kBytes - 4, sent, 8) != CUDA_SUCCESS);
  MUST(cuMemFree_v2(address));
  facts->Say("freed", cuMemcpyHtoD_v2(address, sent, 8) != CUDA_SUCCESS);
}

// Kilobytes of shared pages that this process has mapped and touched.
uint64_t TouchedKiB() {
  FILE* file = fopen("/proc/self/status", "r");
  char line[128];
  unsigned long long kib = 0;
  while (file != nullptr && fgets(line, sizeof(line), file) != nullptr) {
    if (sscanf(line, "RssShmem: %llu", &kib) == 1) break;
  }
  if (file != nullptr) fclose(file);
  return kib;
}

// A program that allocates, fills and frees all day must not eat the host's memory.
void TryHygiene(Facts* facts) {
  const uint64_t before_kib = TouchedKiB();
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, 4 * kBytes));
  MUST(cuMemsetD8_v2(address, 1, 4 * kBytes));
  const uint64_t filled_kib = TouchedKiB();
  MUST(cuMemFree_v2(address));
  facts->Say("freed pages go back",
             filled_kib - before_kib > 8192 && TouchedKiB() - before_kib < 1024);
}

void TryManaged(Facts* facts, unsigned char* sent) {
  CUdeviceptr address = 0;
  MUST(cuMemAllocManaged(&address, kBytes, CU_MEM_ATTACH_GLOBAL));
  MUST(cuMemcpyHtoD_v2(address, sent, kBytes));
  facts->Say("managed from the host", memcmp(reinterpret_cast<void*>(address), sent, kBytes) == 0);
  MUST(cuMemFree_v2(address));
}

void TryMapped(Facts* facts, unsigned char* sent, unsigned char* got) {
  const CUmemAllocationProp prop = PropOn(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle parts[2] = {};
  MUST(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  for (unsigned index = 0; index < 2; ++index) {
    MUST(cuMemCreate(&parts[index], kBytes / 2, &prop, 0));
    MUST(cuMemMap(address + index * kBytes / 2, kBytes / 2, 0, parts[index], 0));
  }
  facts->Say("mapped without access", cuMemcpyHtoD_v2(address, sent, 8) != CUDA_SUCCESS);
  MUST(cuMemSetAccess(address, kBytes, &access, 1));
  MUST(cuMemcpyHtoD_v2(address, sent, kBytes));
  MUST(cuMemcpyDtoH_v2(got, address, kBytes));
  facts->Say("across two mappings", memcmp(sent, got, kBytes) == 0);
  const uint64_t held_bytes = UsedBytes();
  MUST(cuMemRelease(parts[0]));
  MUST(cuMemRelease(parts[1]));
  MUST(cuMemcpyDtoH_v2(got, address, kBytes));
  facts->Say("released but mapped", memcmp(sent, got, kBytes) == 0 && UsedBytes() == held_bytes);
  MUST(cuMemUnmap(address, kBytes));
  facts->Say("unmapped gives back", held_bytes - UsedBytes() == kBytes);
  facts->Say("unmapped", cuMemcpyHtoD_v2(address, sent, 8) != CUDA_SUCCESS);
  MUST(cuMemAddressFree(address, kBytes));
}

void TryArray(Facts* facts, unsigned char* sent, unsigned char* got) {
  CUarray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = FloatArray(100, 33, 0, 0);
  MUST(cuArray3DCreate_v2(&array, &descriptor));
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = sent;
  copy.srcPitch = 400;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 400;
  copy.Height = 33;
  MUST(cuMemcpy2D_v2(&copy));
  CUDA_MEMCPY2D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = got;
  back.dstPitch = 400;
  back.WidthInBytes = 400;
  back.Height = 33;
  memset(got, 0, 400 * 33);
  MUST(cuMemcpy2D_v2(&back));
  facts->Say("array round trip", memcmp(sent, got, 400 * 33) == 0);
  MUST(cuArrayDestroy(array));
}

}  // namespace

int main() {
  auto* sent = static_cast<unsigned char*>(malloc(kBytes));
  auto* got = static_cast<unsigned char*>(malloc(kBytes));
  FillHost(sent, kBytes);
  UseDevice(0);
  Facts facts;
  TryHygiene(&facts);
  TryLinear(&facts, sent, got);
  TryManaged(&facts, sent);
  TryMapped(&facts, sent, got);
  TryArray(&facts, sent, got);
  free(sent);
  free(got);
  return 0;
}
