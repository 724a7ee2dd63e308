// link: cuda nvml
// flags: -Wl,-z,lazy
// Facts: what a forked child may still do, and that its end leaves the parent unharmed.

#include <string>

#include "child.h"
#include "gpu.h"

namespace conformance {
namespace {

// Runs `question` in a forked child; what it answers, or how it died.
template <typename Question>
std::string InFork(Question question) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const std::string answer = question();
    if (write(ends[1], answer.data(), answer.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  char answer[128] = "";
  const ssize_t length = read(ends[0], answer, sizeof answer - 1);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (length > 0) return std::string(answer, static_cast<size_t>(length));
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "silent";
}

std::string WorkFromScratch() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  const CUresult init = cuInit(0);
  cuDeviceGet(&device, 0);
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  return Name(init) + " " + Name(cuMemAlloc_v2(&memory, kMib));
}

void BeforeInit(Facts& facts) { facts.Text("before_init.child_can_work", InFork(WorkFromScratch)); }

void AfterInit(Facts& facts) {
  facts.Text("after_init.child_cuInit", InFork([] { return Name(cuInit(0)); }));
  facts.Text("after_init.child_count", InFork([] {
               int count = 0;
               return Name(cuDeviceGetCount(&count));
             }));
  facts.Text("after_init.child_retain", InFork([] {
               CUcontext context = nullptr;
               return Name(cuDevicePrimaryCtxRetain(&context, 0));
             }));
  facts.Text("after_init.child_version", InFork([] {
               int version = 0;
               return Name(cuDriverGetVersion(&version));
             }));
}

void WithContext(Facts& facts) {
  UsePrimary(0);
  CUdeviceptr memory = 0;
  cuMemAlloc_v2(&memory, 64 * kMib);
  const size_t before = FreeBytes();
  facts.Text("with_context.child_cuInit", InFork([] { return Name(cuInit(0)); }));
  facts.Text("with_context.child_current", InFork([] {
               CUcontext context = nullptr;
               const CUresult code = cuCtxGetCurrent(&context);
               return Name(code) + (context == nullptr ? " null" : " set");
             }));
  facts.Text("with_context.child_alloc", InFork([] {
               CUdeviceptr block = 0;
               return Name(cuMemAlloc_v2(&block, kMib));
             }));
  facts.Text("with_context.child_free", InFork([&] { return Name(cuMemFree_v2(memory)); }));
  facts.Text("with_context.child_info", InFork([] {
               size_t bytes = 0;
               return Name(cuMemGetInfo_v2(&bytes, &bytes));
             }));
  facts.Text("with_context.child_synchronize", InFork([] { return Name(cuCtxSynchronize()); }));
  facts.Number("parent.bytes_unchanged", DroppedSince(before));
  facts.Code("parent.memory_still_works", cuMemsetD8_v2(memory, 0, 64 * kMib));
  facts.Code("parent.synchronize", cuCtxSynchronize());
  facts.Code("parent.free", cuMemFree_v2(memory));
}

void Nvml(Facts& facts) {
  facts.Code("nvml.init", nvmlInit_v2());
  facts.Text("nvml.child_count", InFork([] {
               unsigned count = 0;
               return Name(nvmlDeviceGetCount_v2(&count));
             }));
  facts.Text("nvml.child_init", InFork([] { return Name(nvmlInit_v2()); }));
  unsigned count = 0;
  facts.Code("nvml.parent_count", nvmlDeviceGetCount_v2(&count));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("forked");
  BeforeInit(facts);
  FirstDevice(facts);
  AfterInit(facts);
  WithContext(facts);
  Nvml(facts);
  return 0;
}
