// The pauses of each GPU that a container uses: read as they were kept, measured where nobody has,
// and kept for the next one.
#include <string.h>
#include <time.h>

#include "base/futex.h"
#include "base/log.h"
#include "device/calibration.h"
#include "device/ids.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "hooks/graphs/capture.h"
#include "real.h"
#include "state/kept_pauses.h"

namespace gpufence {
namespace {

// What measuring takes for a while, as far as seen: code, a stream, a graph (H200: 2 MiB each).
constexpr uint64_t kMeasuringBytes = 8u << 20;
// So long others wait, so that their kernels are not in what is measured, and none of them waits
// for this thread while the driver waits for it. More than compiling the kernel takes.
constexpr uint64_t kMostAwaitedNs = 300'000'000;
// So often it is asked whether somebody keeps what is not known here.
constexpr uint64_t kSeekNs = 5'000'000'000;

// The driver may call the program back meanwhile, and that launch.
constinit thread_local bool finds_here = false;

// Once, before anybody reads it.
void NameGpu(CoreDevice* device) {
  PausingGpu* gpu = &device->gpu;
  memcpy(gpu->uuid, device->uuid, sizeof gpu->uuid);
  char driver[128] = "";
  if (!NvmlReady() || real::nvmlSystemGetDriverVersion(driver, sizeof driver) != NVML_SUCCESS) {
    int version = 0;
    if (real::cuDriverGetVersion(&version) != CUDA_SUCCESS) return;
    snprintf(driver, sizeof driver, "cuda-%d", version);
  }
  if (strlen(driver) < sizeof gpu->driver) strcpy(gpu->driver, driver);
}

// The node folder, then the container's; null at the end.
struct Folders {
  explicit Folders(const CoreLimits& limits) {
    size_t count = 0;
    at[count++] = limits.node_folder;
    for (const auto& folder : limits.folders) at[count++] = folder;
    at[count] = nullptr;
  }
  const char* at[RegionPlaces::kMost + 2];
};

void Use(Cores* cores, CoreDevice* device, const GpuPauses& pauses) {
  if (device->finds == CoreDevice::kMostFinds) return;
  GpuPauses* found = &device->pauses[device->finds++];
  *found = pauses;
  // Pairs with PausesOf.
  cores->markers.pauses[device->ordinal % kMostMarkedDevices].store(found,
                                                                    std::memory_order_release);
}

void SayPauses(const CoreDevice& device, const GpuPauses& pauses, const char* whence) {
  GPUFENCE_LOG(
      kInfo, "device %u: pauses of %u ns between kernels and %u ns between steps of a graph, as %s",
      device.ordinal, pauses.launch_gap_ns, pauses.step_gap_ns, whence);
}

void SayBounds(const CoreDevice& device, bool is_partly_known, const char* why) {
  GPUFENCE_LOG(kInfo,
               "device %u: its pauses %s kernels are not known (%s), so kernels of a few "
               "microseconds%s get less than their share. Run `gpufence calibrate`",
               device.ordinal, is_partly_known ? "around" : "between", why,
               is_partly_known ? " that are waited for" : "");
}

FencedDevice* FencedOf(uint32_t ordinal) {
  Fence* fence = DecidedFence();
  for (uint32_t i = 0; fence != nullptr && i < fence->device_count; ++i) {
    if (static_cast<uint32_t>(fence->devices[i].ordinal) == ordinal) return &fence->devices[i];
  }
  return nullptr;
}

// Within the memory limit. One clause in `why`, unless all is known.
Calibration Measure(const CoreDevice& device, GpuPauses* pauses, const char** why) {
  int processors = 0;
  *why = "the driver does not describe the device";
  if (real::cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                 static_cast<CUdevice>(device.ordinal)) != CUDA_SUCCESS) {
    return Calibration::kNothing;
  }
  *why = "measuring them takes memory, and the limit leaves none";
  Growth growth(FencedOf(device.ordinal), kMeasuringBytes);
  if (!growth) return Calibration::kNothing;
  const Calibration measured = Calibrate(static_cast<uint32_t>(processors), pauses, why);
  growth.Settle();
  if (measured == Calibration::kNothing || ArePlausible(*pauses)) return measured;
  *why = "what was measured cannot be true of a GPU";
  return Calibration::kNothing;
}

// Nothing of the process is known to run on the device, nor held.
bool MayMeasure(Cores* cores, const CoreDevice& device) {
  return !MayCapture() && device.frozen.load(std::memory_order_acquire) == 0 &&
         !cores->markers.streams.IsActive(device.ordinal);
}

// False: nobody keeps them, and it is asked again later.
bool ReadKept(const Cores& cores, CoreDevice* device, GpuPauses* pauses) {
  const Folders folders(cores.limits);
  if (ReadKeptPauses(folders.at, device->gpu, pauses)) return true;
  device->seek_ns.store(NowNs() + kSeekNs, std::memory_order_relaxed);
  return false;
}

// What the state is from then on.
uint32_t UseKept(Cores* cores, CoreDevice* device, const GpuPauses& pauses) {
  Use(cores, device, pauses);
  SayPauses(*device, pauses, "somebody measured them");
  return CoreDevice::kFound;
}

// The same.
uint32_t MeasureAndKeep(Cores* cores, CoreDevice* device) {
  GpuPauses pauses = {};
  const char* why = "";
  const Calibration measured = Measure(*device, &pauses, &why);
  if (measured != Calibration::kNothing) Use(cores, device, pauses);
  if (measured != Calibration::kWhole) {
    SayBounds(*device, measured == Calibration::kPartly, why);
    return CoreDevice::kBounds;
  }
  const Folders folders(cores->limits);
  KeepPauses(folders.at, device->gpu, pauses, static_cast<uint64_t>(time(nullptr)));
  SayPauses(*device, pauses, "measured");
  return CoreDevice::kFound;
}

uint32_t Find(Cores* cores, CoreDevice* device, bool may_measure) {
  GpuPauses pauses = {};
  if (ReadKept(*cores, device, &pauses)) return UseKept(cores, device, pauses);
  return may_measure ? MeasureAndKeep(cores, device) : CoreDevice::kNotKept;
}

// Becomes who finds. False: somebody else is at it.
bool BeginFinding(CoreDevice* device, uint32_t state) {
  return device->finding.compare_exchange_strong(state, CoreDevice::kFinding,
                                                 std::memory_order_acq_rel);
}

void EndFinding(CoreDevice* device, uint32_t state) {
  device->finding.store(state, std::memory_order_release);
  FutexWakeAll(&device->finding);
}

void FindOnce(Cores* cores, CoreDevice* device, bool may_measure) {
  if (finds_here) return;
  const uint32_t state = device->finding.load(std::memory_order_acquire);
  if (state == CoreDevice::kFinding) {
    FutexWait(&device->finding, state, kMostAwaitedNs);
    return;
  }
  const uint32_t most = may_measure ? CoreDevice::kNotKept : CoreDevice::kUnfound;
  if (state > most || !BeginFinding(device, state)) return;
  const Uncancelled uncancelled;
  finds_here = true;
  if (state == CoreDevice::kUnfound) NameGpu(device);
  const uint32_t found = Find(cores, device, may_measure);
  finds_here = false;
  EndFinding(device, found);
}

}  // namespace

void FindPausesBeforeCode() {
  Cores* cores = ActiveCores();
  CoreDevice* device = cores != nullptr ? DeviceAt(cores, CurrentDevice()) : nullptr;
  if (device == nullptr || device->finding.load(std::memory_order_acquire) >= CoreDevice::kBounds) {
    return;
  }
  FindOnce(cores, device, MayMeasure(cores, *device));
}

void FindKeptPauses(Cores* cores, CoreDevice* device) {
  FindOnce(cores, device, /*may_measure=*/false);
}

void FollowKeptPauses(Cores* cores, uint64_t now_ns) {
  const uint32_t devices = cores->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < devices; ++i) {
    CoreDevice* device = &cores->devices[i];
    const uint32_t state = device->finding.load(std::memory_order_acquire);
    const bool is_sought = state == CoreDevice::kNotKept || state == CoreDevice::kBounds;
    if (!is_sought || now_ns < device->seek_ns.load(std::memory_order_relaxed)) continue;
    // Launches wait for who finds: a folder that is slow to read must not keep them.
    GpuPauses pauses = {};
    if (!ReadKept(*cores, device, &pauses) || !BeginFinding(device, state)) continue;
    EndFinding(device, UseKept(cores, device, pauses));
  }
}

}  // namespace gpufence
