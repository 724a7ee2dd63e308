// link: cuda nvml
// flags: -Wl,-z,lazy
// Facts: several processes on one GPU: what they see of each other's memory and time, and that a
// killed one gives everything back.

#include <algorithm>
#include <string>
#include <vector>

#include "child.h"
#include "gpu.h"

namespace conformance {
namespace {

constexpr unsigned long long kSpinNs = 10'000'000;
constexpr int kSpins = 40;

// Work instead of waiting: a kernel that watches the clock ends in time also when the GPU has
// been taken from it meanwhile, one that counts does not.  About 2 ns a round on recent GPUs; the
// simulator knows the name and takes the nanoseconds at their word.
constexpr char kWorkKernel[] = R"(
.version 7.0
.target sm_50
.address_size 64

.visible .global .align 4 .f32 sink;

.visible .entry gpufence_spin_ns(.param .u64 spin_ns)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [spin_ns];
    shr.u64 %rd2, %rd1, 1;
    cvt.u32.u64 %r1, %rd2;
    mov.u32 %r2, 0;
    mov.f32 %f1, 0f3F000000;
again:
    fma.rn.f32 %f1, %f1, %f1, %f1;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    st.global.f32 [sink], %f1;
    ret;
}
)";
constexpr unsigned long long kPieceNs = 200'000;
constexpr long long kBatchNs = 10'000'000;
constexpr long long kWorkNs = 600'000'000;

// The other process: holds memory and works when told to.
class Worker {
 public:
  Worker() : kernels_(LoadKernels()) {
    CUmodule module = nullptr;
    cuModuleLoadData(&module, kWorkKernel);
    cuModuleGetFunction(&work_, module, "gpufence_spin_ns");
    LaunchSpin(kernels_, nullptr, 1000);
    Batch();
    while (Batch() < kBatchNs && launches_ < 10'000) launches_ *= 2;
  }

  std::string Answer(const std::string& command) {
    if (command == "alloc") {
      CUdeviceptr memory = 0;
      return Name(cuMemAlloc_v2(&memory, 512 * kMib));
    }
    const long long start_ns = NowNs();
    if (command == "spin") {
      for (int i = 0; i < kSpins; ++i) LaunchSpin(kernels_, nullptr, kSpinNs);
      cuCtxSynchronize();
      return std::to_string((NowNs() - start_ns) / 1000);
    }
    int batches = 0;
    Event ends[2];
    for (; NowNs() - start_ns < kWorkNs; ++batches) {
      Launch();
      cuEventRecord(ends[batches % 2].get(), nullptr);
      // The batch before: so the GPU always has one more, and never waits for us.
      if (batches > 0) cuEventSynchronize(ends[(batches - 1) % 2].get());
    }
    cuCtxSynchronize();
    return std::to_string(batches * 1'000'000LL / ((NowNs() - start_ns) / 1000));
  }

 private:
  void Launch() {
    unsigned long long piece_ns = kPieceNs;
    void* params[] = {&piece_ns};
    for (int i = 0; i < launches_; ++i) {
      cuLaunchKernel(work_, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
    }
  }

  // Nanoseconds of one batch from launch to end.
  long long Batch() {
    const long long start_ns = NowNs();
    Launch();
    cuCtxSynchronize();
    return NowNs() - start_ns;
  }

  Kernels kernels_;
  CUfunction work_ = nullptr;
  int launches_ = 4;
};

int Work() {
  alarm(60);
  cuInit(0);
  UsePrimary(0);
  Worker worker;
  Tell("ready");
  for (std::string command = HearParent(); !command.empty() && command != "end";
       command = HearParent()) {
    Tell(worker.Answer(command));
  }
  return 0;
}

bool Listed(nvmlDevice_t device, pid_t pid, unsigned long long* used_bytes) {
  std::vector<nvmlProcessInfo_t> list(64);
  unsigned count = 64;
  nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list.data());
  for (unsigned i = 0; i < count && i < list.size(); ++i) {
    if (list[i].pid != static_cast<unsigned>(pid)) continue;
    *used_bytes = list[i].usedGpuMemory;
    return true;
  }
  return false;
}

void Memory(Facts& facts, nvmlDevice_t device) {
  const size_t before = FreeBytes();
  Child other({"worker"});
  other.Hear();
  facts.Is("memory.context_of_another_is_seen", DroppedSince(before) > 0);
  facts.Measured("memory.context_of_another", DroppedSince(before));
  const size_t with_context = FreeBytes();
  other.Say("alloc");
  facts.Text("memory.other_allocates", other.Hear());
  facts.Number("memory.others_allocation_is_seen", DroppedSince(with_context));
  unsigned long long used_bytes = 0;
  facts.Is("memory.other_is_listed", Listed(device, other.pid(), &used_bytes));
  facts.Measured("memory.other_listed_bytes", static_cast<long long>(used_bytes));
  const pid_t pid = other.pid();
  other.Kill();
  facts.Text("memory.other_is_killed", other.Wait());
  facts.Number("memory.left_after_the_kill", DroppedSince(before));
  facts.Is("memory.killed_is_still_listed", Listed(device, pid, &used_bytes));
}

// Two processes that both have work without end take turns: each gets about half.
void Time(Facts& facts) {
  Child one({"worker"});
  one.Hear();
  Child two({"worker"});
  two.Hear();
  one.Say("spin");
  const long long spins_us = std::stoll(one.Hear());
  facts.Is("time.alone_as_declared",
           spins_us < static_cast<long long>(kSpins * kSpinNs / 1000) * 13 / 10);
  one.Say("work");
  const long long one_alone = std::stoll(one.Hear());
  two.Say("work");
  const long long two_alone = std::stoll(two.Hear());
  one.Say("work");
  two.Say("work");
  const long long one_percent = std::stoll(one.Hear()) * 100 / one_alone;
  const long long two_percent = std::stoll(two.Hear()) * 100 / two_alone;
  facts.Measured("time.spins_alone_us", spins_us);
  facts.Measured("time.batches_per_second_alone", one_alone);
  facts.Measured("time.one_beside_another_percent", one_percent);
  facts.Measured("time.two_beside_another_percent", two_percent);
  // Changing over costs some percent, and the runs do not overlap to the millisecond.
  const auto about_half = [](long long percent) { return percent >= 30 && percent <= 65; };
  facts.Is("time.each_gets_about_half", about_half(one_percent) && about_half(two_percent));
}

void Utilization(Facts& facts, nvmlDevice_t device) {
  Child busy({"worker"});
  busy.Hear();
  unsigned highest = 0;
  for (int round = 0; round < 5; ++round) {
    busy.Say("spin");
    busy.Hear();
    nvmlUtilization_t utilization{};
    nvmlDeviceGetUtilizationRates(device, &utilization);
    highest = std::max(highest, utilization.gpu);
  }
  facts.Is("utilization.of_a_busy_gpu_is_high", highest >= 80);
  facts.Measured("utilization.highest_percent", highest);
}

}  // namespace
}  // namespace conformance

int main(int argc, char**) {
  using namespace conformance;
  if (argc > 1) return Work();
  Facts facts("processes");
  UsePrimary(FirstDevice(facts));
  nvmlInit_v2();
  nvmlDevice_t device = nullptr;
  nvmlDeviceGetHandleByIndex_v2(0, &device);
  Memory(facts, device);
  Utilization(facts, device);
  Time(facts);
  return 0;
}
