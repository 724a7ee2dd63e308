// link: cuda
// What fits below a memory limit, in MiB, at each step of a program that takes what only the driver
// knows the size of: contexts, modules, channels of streams, stacks, a second device's context.
#include "support/fence_program.h"

using namespace fencetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

namespace {

constexpr int kStreams = 64;

void OnDevice(simtest::Facts* facts, CUdevice device) {
  CUcontext context = nullptr;
  CUmodule globals = nullptr;
  CUmodule kernels = nullptr;
  CUstream streams[kStreams];
  const auto say = [&](const char* what) {
    char name[32];
    snprintf(name, sizeof name, "%d %s", device, what);
    facts->Say(name, RoomMiB());
  };
  MUST(cuCtxCreate_v2(&context, 0, device));
  say("context");
  MUST(cuModuleLoadData(&globals, kGlobals));
  say("globals");
  for (CUstream& stream : streams) MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  say("streams");
  MUST(cuModuleLoadData(&kernels, kKernels));
  MUST(Launch(Function(kernels, "plain")));
  MUST(cuCtxSynchronize());
  say("kernel");
  MUST(cuModuleUnload(globals));
  say("unloaded");
  MUST(cuCtxDestroy_v2(context));
}

}  // namespace

int main() {
  simtest::Facts facts;
  int count = 0;
  MUST(cuInit(0));
  MUST(cuDeviceGetCount(&count));
  for (CUdevice device = 0; device < count; ++device) OnDevice(&facts, device);
  return 0;
}
