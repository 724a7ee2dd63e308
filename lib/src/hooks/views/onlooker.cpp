#include "hooks/views/onlooker.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/env.h"
#include "base/forked.h"
#include "base/futex.h"
#include "base/locks.h"
#include "base/log.h"
#include "config/gpu_names.h"
#include "config/limits.h"
#include "device/ids.h"
#include "device/usage.h"
#include "hooks/container.h"
#include "hooks/fence.h"
#include "real.h"
#include "state/region.h"

namespace gpufence {
namespace {

constexpr size_t kWhyBytes = 400;
constexpr size_t kMostUuidText = 96;

enum class Settings : uint32_t {
  kUnread = 0,
  kNone,  // nobody set a limit, or it cannot be read
  kLimits,
};

struct LimitOf {
  uint8_t uuid[16];
  uint64_t bytes;  // kUnlimitedBytes: nobody claims one
  uint64_t ceiling_bytes;
  uint64_t total_bytes;
  bool is_oversold;
};

// What the settings say, read once. Wiped on fork: a child may have others.
struct Onlooker {
  std::atomic<Settings> settings;
  SpinLock publishing;
  bool process_scope;
  char device_name[sizeof Claims::device_name];
  char container[sizeof Claims::container];
  char state_folder[sizeof Claims::state_folder];
  LimitsFile set_limits;  // what an operator set, as it was last read
  uint32_t count;
  LimitOf limits[kMostLimitedDevices];
};

// Off the caller's stack.
struct Workspace {
  Onlooker read;
  Claims claims;
  DeviceIdentity devices[kMostLimitedDevices];
  DeviceLimits limits[kMostLimitedDevices];
};

constinit std::atomic<Onlooker*> the_onlooker{nullptr};

// The container's region, mapped read-only at the first question that finds it. Not wiped: looking
// on is the same for a child.
struct Sight {
  std::atomic<bool> found;
  RegionFile file;  // written once, before `found`
  SpinLock publishing;
};
constinit Sight sight = {};

void Warn(const char* text) { GPUFENCE_LOG(kWarn, "%s", text); }

Onlooker* OnlookerMemory() {
  Onlooker* onlooker = the_onlooker.load(std::memory_order_acquire);
  if (onlooker != nullptr) return onlooker;
  auto* made = static_cast<Onlooker*>(MapWipedOnFork(sizeof(Onlooker)));
  if (made == nullptr) return nullptr;
  if (the_onlooker.compare_exchange_strong(onlooker, made, std::memory_order_acq_rel)) return made;
  UnmapWipedOnFork(made, sizeof(Onlooker));
  return onlooker;
}

bool Identify(nvmlDevice_t device, DeviceIdentity* identity) {
  nvmlMemory_t memory = {};
  if (real::nvmlDeviceGetMemoryInfo(device, &memory) != NVML_SUCCESS ||
      !UuidOf(device, identity->uuid)) {
    return false;
  }
  identity->total_bytes = memory.total;
  return true;
}

// An instance of a split GPU that the process sees is its only device.
bool IdentifyInstance(std::string_view name, DeviceIdentity* identity) {
  char uuid[kMostUuidText];
  if (name.empty() || name.size() >= sizeof uuid) return false;
  memcpy(uuid, name.data(), name.size());
  uuid[name.size()] = '\0';
  nvmlDevice_t device = nullptr;
  identity->ordinal = 0;
  identity->nvml_index = -1;
  return real::nvmlDeviceGetHandleByUUID(uuid, &device) == NVML_SUCCESS &&
         Identify(device, identity);
}

size_t ListDevices(DeviceIdentity* devices) {
  unsigned count = 0;
  if (real::nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS) return 0;
  size_t listed = 0;
  for (unsigned index = 0; index < count && listed < kMostLimitedDevices - 1; ++index) {
    nvmlDevice_t device = nullptr;
    DeviceIdentity* identity = &devices[listed];
    if (real::nvmlDeviceGetHandleByIndex_v2(index, &device) != NVML_SUCCESS ||
        !Identify(device, identity)) {
      continue;
    }
    identity->ordinal = index;
    identity->nvml_index = static_cast<int32_t>(index);
    ++listed;
  }
  const char* visible = EnvText("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return listed;
  NumberAsCuda(visible, devices, listed);
  return listed + (IdentifyInstance(VisibleInstance(visible), &devices[listed]) ? 1 : 0);
}

// kUnread: NVML said nothing, so ask again.
Settings ReadSettings(Workspace* work) {
  char why[kWhyBytes];
  Onlooker* read = &work->read;
  ConfigResult result = ReadClaims(&work->claims, why, sizeof why);
  memcpy(read->device_name, work->claims.device_name, sizeof read->device_name);
  memcpy(read->container, work->claims.container, sizeof read->container);
  memcpy(read->state_folder, work->claims.state_folder, sizeof read->state_folder);
  read->process_scope = work->claims.process_scope;
  const bool set =
      result != ConfigResult::kInvalid && FindSetLimits(work->claims, &read->set_limits);
  if (result == ConfigResult::kLimits || set) {
    const size_t count = ListDevices(work->devices);
    if (count == 0) return Settings::kUnread;
    result = LimitDevices(work->claims, work->devices, count, work->limits, Warn, why, sizeof why);
    if (result == ConfigResult::kLimits && !LimitsMemory(work->limits, count)) {
      result = ConfigResult::kNothing;
    }
    if (result == ConfigResult::kNothing && set) result = ConfigResult::kLimits;
    for (size_t i = 0; result == ConfigResult::kLimits && i < count; ++i) {
      read->limits[i] = {{},
                         work->limits[i].memory_bytes,
                         work->limits[i].memory_ceiling_bytes,
                         work->devices[i].total_bytes,
                         work->limits[i].oversubscribe != 0};
      memcpy(read->limits[i].uuid, work->devices[i].uuid, sizeof read->limits[i].uuid);
      read->count = static_cast<uint32_t>(i + 1);
    }
  }
  if (result == ConfigResult::kInvalid) {
    GPUFENCE_LOG(kWarn, "NVML shows the whole GPU, not the limit: %s", why);
  }
  return result == ConfigResult::kLimits ? Settings::kLimits : Settings::kNone;
}

// No lock is held while NVML is asked: threads that come first at once all read, one is kept.
void Decide(Onlooker* onlooker) {
  const Uncancelled during;
  void* memory = MapWipedOnFork(sizeof(Workspace));
  if (memory == nullptr) return;
  auto* work = static_cast<Workspace*>(memory);
  const Settings settings = ReadSettings(work);
  if (settings != Settings::kUnread) {
    SpinGuard guard(&onlooker->publishing);
    if (onlooker->settings.load(std::memory_order_relaxed) == Settings::kUnread) {
      onlooker->process_scope = work->read.process_scope;
      memcpy(onlooker->device_name, work->read.device_name, sizeof onlooker->device_name);
      memcpy(onlooker->container, work->read.container, sizeof onlooker->container);
      memcpy(onlooker->state_folder, work->read.state_folder, sizeof onlooker->state_folder);
      memcpy(onlooker->limits, work->read.limits, sizeof onlooker->limits);
      onlooker->count = work->read.count;
      onlooker->set_limits.TakeOver(work->read.set_limits);
      onlooker->settings.store(settings, std::memory_order_release);
    }
  }
  UnmapWipedOnFork(memory, sizeof(Workspace));
}

// Null: not decided yet, or no memory.
Onlooker* DecidedOnlooker() {
  Onlooker* onlooker = OnlookerMemory();
  if (onlooker == nullptr) return nullptr;
  if (onlooker->settings.load(std::memory_order_acquire) == Settings::kUnread) Decide(onlooker);
  return onlooker->settings.load(std::memory_order_acquire) == Settings::kUnread ? nullptr
                                                                                 : onlooker;
}

bool FindSight(const Onlooker& onlooker, RegionFile* file) {
  if (sight.found.load(std::memory_order_acquire)) {
    *file = sight.file;
    return true;
  }
  auto* claims = static_cast<Claims*>(MapWipedOnFork(sizeof(Claims)));
  if (claims == nullptr) return false;
  memcpy(claims->container, onlooker.container, sizeof onlooker.container);
  memcpy(claims->state_folder, onlooker.state_folder, sizeof onlooker.state_folder);
  char name[kContainerNameBytes];
  const bool found = FindRegion(PlacesOf(*claims, name), file);
  UnmapWipedOnFork(claims, sizeof(Claims));
  if (!found) return false;
  SpinGuard guard(&sight.publishing);
  if (sight.found.load(std::memory_order_relaxed)) {
    CloseRegion(file);  // another thread came as far
    *file = sight.file;
  } else {
    sight.file = *file;
    sight.found.store(true, std::memory_order_release);
  }
  return true;
}

// By whichever identity the container's processes know the device.
uint32_t RowOf(const RegionFile& file, const uint8_t uuid[16], nvmlDevice_t device) {
  const uint32_t row = LookRow(file.region, uuid);
  uint8_t place[16];
  return row == kMaxDevices && PlaceOf(device, place) ? LookRow(file.region, place) : row;
}

bool LookFromOutside(const uint8_t uuid[16], nvmlDevice_t device, LimitAndUse* seen) {
  const Uncancelled during;
  Onlooker* onlooker = DecidedOnlooker();
  if (onlooker == nullptr ||
      onlooker->settings.load(std::memory_order_relaxed) != Settings::kLimits) {
    return false;
  }
  *seen = {kUnlimitedBytes, 0, false};
  uint64_t total_bytes = 0;
  uint64_t ceiling_bytes = kUnlimitedBytes;
  for (uint32_t i = 0; i < onlooker->count; ++i) {
    if (memcmp(onlooker->limits[i].uuid, uuid, 16) != 0) continue;
    seen->limit_bytes = onlooker->limits[i].bytes;
    seen->is_oversold = onlooker->limits[i].is_oversold;
    total_bytes = onlooker->limits[i].total_bytes;
    ceiling_bytes = onlooker->limits[i].ceiling_bytes;
  }
  RegionFile file;
  if (!onlooker->process_scope && FindSight(*onlooker, &file)) {
    const uint32_t row = RowOf(file, uuid, device);
    const RowSeen found = row == kMaxDevices ? RowSeen{} : LookAtRow(file, row);
    seen->used_bytes = found.used_bytes;
    if (found.processes > 0) {
      seen->limit_bytes = found.limit_bytes;
      seen->is_oversold = found.is_oversold;
    }
    onlooker->set_limits.ReadNewer(file.region);
  }
  const SetLimits set = onlooker->set_limits.For(uuid, total_bytes);
  if (set.memory_bytes.has_value()) {
    seen->limit_bytes = std::min(*set.memory_bytes, ceiling_bytes);
  }
  return seen->limit_bytes != kUnlimitedBytes;
}

}  // namespace

bool LookAt(nvmlDevice_t device, LimitAndUse* seen) {
  uint8_t uuid[16];
  Fence* fence = DecidedFence();
  if (fence == nullptr) {
    const Onlooker* onlooker = DecidedOnlooker();
    if (onlooker == nullptr || onlooker->settings == Settings::kNone) return false;
  }
  if (!UuidOf(device, uuid)) return false;
  for (uint32_t i = 0; fence != nullptr && i < fence->device_count; ++i) {
    FencedDevice* fenced = &fence->devices[i];
    if (IsPlace(fenced->uuid) ? !IsDevice(device, fenced->uuid)
                              : memcmp(fenced->uuid, uuid, sizeof uuid) != 0) {
      continue;
    }
    fenced->account.RefreshAt(CoarseNowNs());
    *seen = LimitAndUseOf(&fenced->account);
    return seen->limit_bytes != kNoLimit;
  }
  return LookFromOutside(uuid, device, seen);
}

// Where NVML counts in the host's namespace, the only number known to be the container's is the one
// that this process learned to be its own: the others' pids are somebody else's numbers there.
bool IsOurs(uint32_t pid) {
  const uint32_t own_number = OwnListedNumber();
  if (own_number != 0 && own_number != static_cast<uint32_t>(getpid())) return pid == own_number;
  if (own_number != 0 && own_number == pid) return true;
  if (Fence* fence = DecidedFence()) {
    return KnowsProcess(fence->devices[0].account.file().region, pid);
  }
  return sight.found.load(std::memory_order_acquire) && KnowsProcess(sight.file.region, pid);
}

const char* GivenName() {
  const Onlooker* onlooker = DecidedOnlooker();
  return onlooker == nullptr || onlooker->device_name[0] == '\0' ? nullptr : onlooker->device_name;
}

}  // namespace gpufence
