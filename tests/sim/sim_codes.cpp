// link: cuda
// The codes by which the driver refuses: before cuInit, without a context, and for wrong arguments.
//
//   sim_codes before | without | wrong | init
#include "support/sim_program.h"

namespace {

using namespace simtest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr CUdeviceptr kGarbage = 0x1234;

void Ask(Facts* facts) {
  size_t a = 0;
  size_t b = 0;
  int count = 0;
  CUdeviceptr address = kGarbage;
  CUcontext context = nullptr;
  facts->Code("cuDeviceGetCount", cuDeviceGetCount(&count));
  facts->Code("cuCtxGetCurrent", cuCtxGetCurrent(&context));
  facts->Code("cuMemAlloc", cuMemAlloc_v2(&address, 1024));
  facts->Code("cuMemFree", cuMemFree_v2(1024));
  facts->Code("cuMemGetInfo", cuMemGetInfo_v2(&a, &b));
  facts->Code("cuMemAllocManaged", cuMemAllocManaged(&address, 1024, CU_MEM_ATTACH_GLOBAL));
  facts->Code("cuCtxPopCurrent", cuCtxPopCurrent_v2(&context));
  facts->Say("result is null", address == 0);
}

void AskWrong(Facts* facts) {
  const CUcontext context = UseDevice(0);
  CUdeviceptr address = kGarbage;
  CUdeviceptr_v1 low = 0;
  size_t pitch = 0;
  CUdevice device = 0;
  facts->Code("zero bytes", cuMemAlloc_v2(&address, 0));
  facts->Code("no result", cuMemAlloc_v2(nullptr, 1024));
  facts->Code("too much", cuMemAlloc_v2(&address, uint64_t{1} << 50));
  facts->Code("overflow", cuMemAlloc_v2(&address, ~uint64_t{0}));
  facts->Code("pool too much", cuMemAllocAsync(&address, uint64_t{1} << 50, nullptr));
  facts->Code("pool overflow", cuMemAllocAsync(&address, ~uint64_t{0}, nullptr));
  facts->Code("pool zero bytes", cuMemAllocAsync(&address, 0, nullptr));
  facts->Code("pitch of 3 bytes", cuMemAllocPitch_v2(&address, &pitch, 1000, 10, 3));
  facts->Code("managed without attachment", cuMemAllocManaged(&address, 1024, 0));
  facts->Say("result is null", address == 0);
  facts->Code("32-bit form", cuMemAlloc(&low, 4096));
  facts->Code("free of null", cuMemFree_v2(0));
  facts->Code("free of nonsense", cuMemFree_v2(0x1000));
  MUST(cuMemAlloc_v2(&address, 4096));
  facts->Code("free inside", cuMemFree_v2(address + 256));
  facts->Code("free", cuMemFree_v2(address));
  facts->Code("free again", cuMemFree_v2(address));
  facts->Code("no such device", cuDeviceGet(&device, 7));
  facts->Code("negative device", cuDeviceGet(&device, -1));
  CUcontext other = nullptr;
  facts->Code("context on no device", cuCtxCreate_v2(&other, 0, 9));
  facts->Code("set of nonsense", cuCtxSetCurrent(reinterpret_cast<CUcontext>(0xdead0)));
  facts->Code("destroy of nonsense", cuCtxDestroy_v2(reinterpret_cast<CUcontext>(0xdead0)));
  facts->Code("array of nonsense", cuArrayDestroy(reinterpret_cast<CUarray>(0xdead0)));
  facts->Code("pool of nonsense", cuMemPoolDestroy(reinterpret_cast<CUmemoryPool>(0xdead0)));
  facts->Code("release of nonsense", cuMemRelease(0xdead0));
  MUST(cuCtxPushCurrent_v2(context));
  MUST(cuCtxDestroy_v2(context));
  facts->Code("after its end", cuMemAlloc_v2(&address, 1024));
  facts->Code("destroy again", cuCtxDestroy_v2(context));
  facts->Code("unretained primary", cuDevicePrimaryCtxRelease_v2(0));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Facts facts;
  if (strcmp(argv[1], "wrong") == 0) {
    AskWrong(&facts);
    return 0;
  }
  if (strcmp(argv[1], "before") != 0) facts.Code("cuInit", cuInit(0));
  Ask(&facts);
  return 0;
}
