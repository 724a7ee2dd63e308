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

// The other process: holds memory and works when told to.
int Worker() {
  alarm(60);
  cuInit(0);
  UsePrimary(0);
  const Kernels kernels = LoadKernels();
  LaunchSpin(kernels, nullptr, 1000);
  cuCtxSynchronize();
  Tell("ready");
  for (std::string command = HearParent(); !command.empty() && command != "end";
       command = HearParent()) {
    if (command == "alloc") {
      CUdeviceptr memory = 0;
      Tell(Name(cuMemAlloc_v2(&memory, 512 * kMib)));
    } else if (command == "spin") {
      const long long start_ns = NowNs();
      for (int i = 0; i < kSpins; ++i) LaunchSpin(kernels, nullptr, kSpinNs);
      cuCtxSynchronize();
      Tell(std::to_string((NowNs() - start_ns) / 1000));
    }
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

// Two processes that both have enough work take turns: each gets about half.
void Time(Facts& facts) {
  Child one({"worker"});
  Child two({"worker"});
  one.Hear();
  two.Hear();
  one.Say("spin");
  const long long alone_us = std::stoll(one.Hear());
  one.Say("spin");
  two.Say("spin");
  const long long first_us = std::stoll(one.Hear());
  const long long second_us = std::stoll(two.Hear());
  facts.Measured("time.alone_us", alone_us);
  facts.Measured("time.beside_another_us", first_us);
  facts.Measured("time.the_other_us", second_us);
  facts.Is("time.alone_as_declared",
           alone_us < static_cast<long long>(kSpins * kSpinNs / 1000) * 13 / 10);
  facts.Is("time.beside_another_takes_twice_as_long",
           std::max(first_us, second_us) > alone_us * 17 / 10);
  facts.Is("time.turns_are_fair", std::min(first_us, second_us) > alone_us * 14 / 10);
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
  if (argc > 1) return Worker();
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
