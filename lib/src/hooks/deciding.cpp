// Deciding: reads what limits are set and what the driver says of its GPUs, and opens what holds
// them. Once in a process, with no lock of ours held across a call of the driver. Begins at cuInit,
// where the program is told of limits that cannot be held.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/futex.h"
#include "base/locks.h"
#include "base/log.h"
#include "hooks/container.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/cores.h"
#include "hooks/fence.h"
#include "hooks/graphs/executables.h"
#include "hooks/memory/managed.h"
#include "hooks/pools/pools.h"
#include "real.h"

namespace gpufence {
namespace {

constexpr size_t kWhyBytes = 400;

Fence* FenceMemory() {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  if (fence != nullptr) return fence;
  auto* made = static_cast<Fence*>(MapWipedOnFork(sizeof(Fence)));
  if (made == nullptr) return nullptr;
  if (the_fence.compare_exchange_strong(fence, made, std::memory_order_acq_rel)) return made;
  UnmapWipedOnFork(made, sizeof(Fence));
  return fence;
}

void Warn(const char* text) { GPUFENCE_LOG(kWarn, "%s", text); }

// The text reaches the user once: a process that retries cuInit in a loop is told three times.
FenceState Refuse(const char* why) {
  GPUFENCE_LOG(kError, "cuInit fails on purpose: %s", why);
  return FenceState::kRefused;
}

// All that deciding takes, off the caller's stack. Each thread that comes first gathers its own.
struct Workspace {
  ConfigResult claimed;
  char why[kWhyBytes];  // of kInvalid
  Claims claims;
  LimitsFile set_limits;
  bool any_set;
  size_t count;
  DeviceIdentity devices[kMostLimitedDevices];
  bool can_oversell[kMostLimitedDevices];
  DeviceLimits limits[kMostLimitedDevices];
};

// ---- gathering: what files and the driver say, with no lock held ----

enum class Gathered : uint8_t {
  kAll,
  kTooEarly,  // the driver is not initialised yet, and the next call asks again
};

Gathered Misses(Workspace* work, const char* what) {
  work->claimed = ConfigResult::kInvalid;
  snprintf(work->why, sizeof work->why,
           "%s, so no limit can be tied to a GPU. See if `nvidia-smi -L` lists the GPUs, or unset "
           "the limits",
           what);
  return Gathered::kAll;
}

bool Identify(int ordinal, DeviceIdentity* identity) {
  CUdevice device = 0;
  size_t total_bytes = 0;
  if (real::cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      real::cuDeviceTotalMem_v2(&total_bytes, device) != CUDA_SUCCESS ||
      !IdentityOf(device, identity->uuid)) {
    return false;
  }
  identity->lacks_uuid = IsPlace(identity->uuid);
  identity->ordinal = static_cast<uint32_t>(device);
  identity->nvml_index = -1;
  identity->total_bytes = total_bytes;
  // Drivers before CUDA 12.4 do not know that attribute, and say so.
  int is_client = 0;
  identity->is_mps = real::cuDeviceGetAttribute(&is_client, CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
                                                device) == CUDA_SUCCESS &&
                     is_client != 0;
  return true;
}

// A GPU that is left out would be without a limit: all of them, or an answer why not.
Gathered ListDevices(Workspace* work, DriverIs driver) {
  int count = 0;
  const CUresult rc = real::cuDeviceGetCount(&count);
  const bool is_down = rc == CUDA_ERROR_NOT_INITIALIZED || rc == CUDA_ERROR_DEINITIALIZED;
  if (rc == CUDA_SUCCESS ? count == 0 : is_down && driver == DriverIs::kUnknown) {
    return Gathered::kTooEarly;
  }
  if (rc != CUDA_SUCCESS || count < 0 || static_cast<size_t>(count) > kMostLimitedDevices) {
    return Misses(work,
                  "the driver does not report how many GPUs there are, or reports more than 64");
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (!Identify(ordinal, &work->devices[ordinal])) {
      return Misses(work, "the driver does not report which GPU is which");
    }
    work->can_oversell[ordinal] =
        CanOversell(static_cast<CUdevice>(work->devices[ordinal].ordinal));
  }
  work->count = static_cast<size_t>(count);
  return Gathered::kAll;
}

// NVML is opened only where a claim needs its indices: it costs milliseconds.
void JoinNvml(Workspace* work) {
  if (!NeedsNvml(work->claims)) return;
  for (size_t d = 0; d < work->count; ++d) {
    work->devices[d].nvml_index = NvmlIndexOf(work->devices[d].uuid);
  }
}

// The driver's answers may need the loader, whose lock another thread may hold while it runs a
// constructor that asks for a decision as well: so nobody waits for the thread that gathers.
Gathered Gather(Workspace* work, DriverIs driver) {
  work->claimed = ReadClaims(&work->claims, work->why, sizeof work->why);
  if (work->claimed == ConfigResult::kInvalid) return Gathered::kAll;
  work->any_set = FindSetLimits(work->claims, &work->set_limits);
  if (work->claimed == ConfigResult::kNothing && !work->any_set) return Gathered::kAll;
  if (driver == DriverIs::kDown) {
    BiasedLock::Prepare();  // of the tables of chunks
    return Gathered::kTooEarly;
  }
  const Gathered gathered = ListDevices(work, driver);
  if (gathered == Gathered::kAll) JoinNvml(work);
  return gathered;
}

// ---- deciding: by one thread, with the driver's answers at hand and without any call to it ----

// Where memory cannot be oversold, all that the container is promised is its share. A forked
// child's parent has said so.
void LimitToShares(Workspace* work) {
  static constinit std::atomic<bool> said{false};
  for (size_t d = 0; d < work->count; ++d) {
    DeviceLimits* limits = &work->limits[d];
    const DeviceIdentity& device = work->devices[d];
    const uint64_t ratio = limits->oversubscribe;
    if (ratio == 0) continue;
    if (limits->memory_bytes == kUnlimitedBytes) {
      limits->oversubscribe = 0;
      if (said.exchange(true, std::memory_order_relaxed)) continue;
      GPUFENCE_LOG(kWarn, "%s has no effect without a memory limit", limits->oversubscribe_source);
      continue;
    }
    if (work->can_oversell[d]) continue;
    const uint64_t share_bytes = ShareBytes(limits->memory_bytes, ratio);
    const uint64_t most_bytes = share_bytes < device.total_bytes ? share_bytes : device.total_bytes;
    if (most_bytes < limits->memory_bytes) limits->memory_bytes = most_bytes;
    if (limits->memory_ceiling_bytes != kUnlimitedBytes) {
      limits->memory_ceiling_bytes = ShareBytes(limits->memory_ceiling_bytes, ratio);
    }
    limits->oversubscribe = 0;
    if (said.exchange(true, std::memory_order_relaxed)) continue;
    GPUFENCE_LOG(kWarn,
                 "%s has no effect on device %u: it cannot use managed memory while the host does. "
                 "Its memory limit is what may lie on the GPU, %llu bytes",
                 limits->oversubscribe_source, device.ordinal,
                 static_cast<unsigned long long>(limits->memory_bytes));
  }
}

bool OpenShared(const Claims& claims, RegionFile* file, char* why, size_t why_bytes) {
  if (claims.process_scope) {
    if (OpenPrivateRegion(file)) return true;
    snprintf(why, why_bytes, "this process got no memory for its own region");
    return false;
  }
  char name[kContainerNameBytes];
  return OpenRegion(PlacesOf(claims, name), file, why, why_bytes);
}

void ReadStaleOn(uint32_t device) {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  if (device < fence->device_count) ReadOverheadNow(&fence->devices[device]);
}

bool MakeRoomOn(uint32_t device) {
  Fence* fence = the_fence.load(std::memory_order_acquire);
  // The driver may call the program back meanwhile, whose request would need room as well.
  if (device >= fence->device_count || this_thread.making_room != 0) return false;
  ++this_thread.making_room;
  {
    const PoolRelease release(fence);
    DischargeLateFrees(fence, /*may_wait=*/true);
    TrimPools(fence, &fence->devices[device]);
  }
  TrimGraphs(&fence->devices[device]);
  ReadOverheadNow(&fence->devices[device]);
  this_thread.making_room = 0;
  return true;
}

// What a person can do where OpenShared failed with `error`.
const char* AdviceOn(int error) {
  return error == EMFILE || error == ENFILE
             ? "Raise the limit of open files (ulimit -n)"
             : "Give all of the container's processes one folder that each of them can write to, "
               "by GPUFENCE_STATE_DIR, or set GPUFENCE_SCOPE=process to limit each by itself";
}

FenceState FenceDevices(Fence* fence, const Workspace& work, RegionFile* opened) {
  char why[kWhyBytes];
  const Claims& claims = work.claims;
  const DeviceIdentity* devices = work.devices;
  const DeviceLimits* limits = work.limits;
  RegionFile& file = *opened;
  if (!OpenShared(claims, &file, why, sizeof why)) {
    char line[kWhyBytes + 160];
    snprintf(line, sizeof line, "%s. %s", why, AdviceOn(errno));
    return Refuse(line);
  }
  fence->set_limits.TakeOver(work.set_limits);
  if (!ReadSetLimits(claims, file, &fence->set_limits)) {
    return Refuse(
        "the container's limits file beside its region is damaged. Set its limits anew with "
        "`gpufence set NAME --reset`");
  }
  const uint32_t slot = ClaimSlot(file);
  if (slot == kNoSlot) {
    return Refuse(
        "no free slot in the container's region (4096 processes). End a process of this container");
  }
  for (size_t i = 0; i < work.count; ++i) {
    const uint32_t row = FindRow(file, devices[i].uuid);
    if (row == kMaxDevices) {
      return Refuse(
          "the container's region has no room for another GPU (64 at most, and its folder must not "
          "be full). Free space there, or name another folder in GPUFENCE_STATE_DIR");
    }
    FencedDevice* device = &fence->devices[i];
    for (size_t byte = 0; byte < sizeof device->uuid; ++byte) {
      device->uuid[byte] = devices[i].uuid[byte];
    }
    device->ordinal = static_cast<CUdevice>(devices[i].ordinal);
    device->total_bytes = devices[i].total_bytes;
    const uint64_t limit_bytes = LimitAmongOthers(file, row, slot, limits[i].memory_bytes);
    device->account.Open(file, row, slot, static_cast<uint16_t>(i), limit_bytes, MakeRoomOn,
                         limits[i].oversubscribe);
    if (!claims.process_scope) {
      device->account.Obey(&fence->set_limits, devices[i].uuid, devices[i].total_bytes,
                           limits[i].memory_ceiling_bytes);
      PublishCeilings(file.region, row, slot, limits[i].memory_ceiling_bytes,
                      limits[i].core_ceiling_millipercent,
                      limits[i].core_soft_ceiling_millipercent);
    }
    device->account.ReadStaleWith(ReadStaleOn);
    GPUFENCE_LOG(kInfo, "device %u: memory limit %llu bytes (%s)", devices[i].ordinal,
                 static_cast<unsigned long long>(limit_bytes), limits[i].memory_source);
  }
  fence->device_count = static_cast<uint32_t>(work.count);
  return FenceState::kFenced;
}

// Where each process has a share of its own, it is a tenant of its own in the node folder, too.
void NameProcess(char name[kContainerNameBytes]) {
  char number[16];
  const int length = snprintf(number, sizeof number, "#%d", getpid());
  const size_t most = kContainerNameBytes - 1 - static_cast<size_t>(length);
  memcpy(name + strnlen(name, most), number, static_cast<size_t>(length) + 1);
}

// Seats for the core limit: with the containers of the node, or by the container's own region.
bool OpenShares(Fence* fence, const Workspace& work, const RegionFile& file, char* why,
                size_t why_bytes) {
  char name[kContainerNameBytes];
  RegionPlaces own = PlacesOf(work.claims, name);
  const bool alone = work.claims.process_scope;
  if (alone) {
    own.folders[0] = nullptr;
    NameProcess(name);
  }
  Activity* activities[kMostLimitedDevices];
  for (size_t i = 0; i < work.count; ++i) activities[i] = fence->devices[i].account.activity();
  return OpenCores(work.claims, own, file, alone ? nullptr : &fence->set_limits, work.devices,
                   work.limits, activities, work.count, why, why_bytes);
}

void WarnOfPlaces(const Workspace& work) {
  static constinit std::atomic<bool> said{false};
  if (!work.devices[0].lacks_uuid || said.exchange(true, std::memory_order_relaxed)) return;
  GPUFENCE_LOG(
      kWarn,
      "this driver reports no UUIDs of GPUs: limits and ledgers go by a GPU's place on the "
      "PCI bus. Name GPUs by index");
}

FenceState Decide(Fence* fence, Workspace* work) {
  if (work->claimed == ConfigResult::kInvalid) return Refuse(work->why);
  if (work->claimed == ConfigResult::kNothing && !work->any_set) {
    // What was set and limits nothing is said all the same: somebody meant a limit.
    for (size_t i = 0; i < work->claims.note_count; ++i) Warn(work->claims.notes[i]);
    return FenceState::kOpen;
  }
  char why[kWhyBytes];
  const ConfigResult result =
      LimitDevices(work->claims, work->devices, work->count, work->limits, Warn, why, sizeof why);
  if (result == ConfigResult::kInvalid ||
      !LeaveToMps(work->claims, work->devices, work->count, work->limits, why, sizeof why)) {
    return Refuse(why);
  }
  LimitToShares(work);
  WarnOfPlaces(*work);
  const bool claimed = LimitsMemory(work->limits, work->count) ||
                       LimitsCores(work->limits, work->count) ||
                       LimitsThreads(work->limits, work->count);
  if (!claimed && !work->any_set) return FenceState::kOpen;
  RegionFile file;
  const FenceState state = FenceDevices(fence, *work, &file);
  if (state != FenceState::kFenced) return state;
  TakeSharesOfOthers(work->claims, work->devices, work->limits, work->count);
  return OpenShares(fence, *work, file, why, sizeof why) ? state : Refuse(why);
}

// Threads that come first at once all gather; one of them decides, and the others find that done.
void GatherAndDecide(Fence* fence, DriverIs driver) {
  const InsideHook inside;
  const Uncancelled during;
  auto* work = static_cast<Workspace*>(MapWipedOnFork(sizeof(Workspace)));
  if (work == nullptr || Gather(work, driver) == Gathered::kAll) {
    const FutexGuard guard(&fence->deciding);
    if (fence->state.load(std::memory_order_relaxed) == FenceState::kUnread) {
      fence->state.store(work != nullptr
                             ? Decide(fence, work)
                             : Refuse("the host has no memory left to read the limits. Free some"),
                         std::memory_order_release);
    }
  }
  if (work != nullptr) UnmapWipedOnFork(work, sizeof(Workspace));
}

}  // namespace

CUresult OpenFence(DriverIs driver) {
  Fence* fence = FenceMemory();
  if (fence == nullptr) {
    GPUFENCE_LOG(
        kError,
        "cuInit fails on purpose: the host has no memory left to keep the limits in. Free some");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (fence->state.load(std::memory_order_acquire) == FenceState::kUnread) {
    GatherAndDecide(fence, driver);
  }
  return IsRefused() ? kRefusalCode : CUDA_SUCCESS;
}

}  // namespace gpufence

using namespace gpufence;

extern "C" {

CUresult cuInit(unsigned int Flags) {
  // Before the driver: an unreadable limit leaves it uninitialised, so that no later call works.
  CUresult rc = OpenFence(DriverIs::kDown);
  if (rc != CUDA_SUCCESS) return rc;
  rc = real::cuInit(Flags);
  if (rc != CUDA_SUCCESS) return rc;
  // After it: shares of a device and UUIDs need the driver's answers.
  return OpenFence(DriverIs::kUp);
}

}  // extern "C"
