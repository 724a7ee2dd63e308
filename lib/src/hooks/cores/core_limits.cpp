// Which core limits hold in this process: those it was given, and those that an operator sets while
// it runs. And whether somebody else uses the device, where a soft limit could use what nobody else
// wants and the container meets nobody in a node folder: what the GPU does beyond us, as NVML sees
// it. Must not know how a limit is held.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/forked.h"
#include "base/futex.h"
#include "base/locks.h"
#include "base/log.h"
#include "device/ids.h"
#include "hooks/cores/core_pace.h"
#include "hooks/cores/cores.h"
#include "policy/share.h"
#include "real.h"

namespace gpufence {

// ---- neighbours that no node folder shows ----

namespace {

// How busy the device was lately, in percent; false when NVML cannot tell (no NVML, MIG).
bool BusyPercent(const uint8_t uuid[16], uint32_t* percent) {
  nvmlDevice_t device = nullptr;
  nvmlUtilization_t utilization = {};
  if (!NvmlReady() || !NvmlHandleOf(uuid, &device) ||
      real::nvmlDeviceGetUtilizationRates(device, &utilization) != NVML_SUCCESS) {
    return false;
  }
  *percent = utilization.gpu;
  return true;
}

// Once, however often it is found.
void SayUnseen(uint32_t ordinal) {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true, std::memory_order_relaxed)) return;
  GPUFENCE_LOG(
      kWarn,
      "device %u: the soft core limit has no effect: NVML does not report how busy the GPU "
      "is, so neighbours cannot be seen. Set GPUFENCE_NODE_DIR to a folder that the GPU's "
      "containers share",
      ordinal);
}

}  // namespace

void LookForNeighbours(CoreDevice* device, uint64_t now_ns) {
  if (!device->seat.LooksForNeighbours() || !device->neighbours.IsDue(now_ns)) return;
  uint32_t percent = 100;
  const bool known = BusyPercent(device->uuid, &percent);
  if (!known) SayUnseen(device->ordinal);
  const bool seen = device->neighbours.Look(now_ns, device->seat.ChargedNs(), percent);
  if (seen || !known) device->seat.NoteForeign(now_ns);
}

// ---- limits ----

namespace {

constinit std::atomic<Cores*> the_cores{nullptr};
constexpr size_t kWhyBytes = 400;
constexpr uint64_t kMostFollowNs = 100'000'000;  // so long a launch waits for who takes the seats

Cores* CoresMemory() {
  Cores* cores = the_cores.load(std::memory_order_acquire);
  if (cores != nullptr) return cores;
  cores = static_cast<Cores*>(MapWipedOnFork(sizeof(Cores)));
  the_cores.store(cores, std::memory_order_release);
  return cores;
}

// What is left of shares under a ceiling.
CoreShares Below(CoreShares ceiling, CoreShares shares) {
  if (ceiling.hard == 0) return shares;
  return {std::min(shares.hard, ceiling.hard), std::min(shares.soft, ceiling.soft)};
}

// What was set; hard 0: nothing. A hard share that is set holds alone: a soft one of the
// environment would lift it.
CoreShares Imposed(CoreLimits* limits, const CoreClaim& claim) {
  if (limits->set == nullptr) return {};
  const SetLimits set = limits->set->For(claim.uuid, 0);
  CoreShares shares = {set.cores.value_or(0), set.soft_cores.value_or(0)};
  if (set.cores.has_value() && *set.cores == 0) shares.hard = kWholeShare;
  if (!set.cores.has_value() && set.soft_cores.has_value()) shares.hard = claim.own.hard;
  return shares.hard == 0 ? CoreShares{} : Below(claim.ceiling, shares);
}

template <typename Amount>
Amount SetBelow(Amount set, Amount least, Amount ceiling) {
  const Amount amount = std::max(set, least);
  return ceiling == 0 ? amount : std::min(amount, ceiling);
}

template <typename Word>
bool Replace(std::atomic<Word>* word, Word value) {
  return word->exchange(value, std::memory_order_relaxed) != value;
}

void KeepTerms(LiveTerms* live, const CoreTerms& terms) {
  bool changes = Replace(&live->priority, terms.priority);
  changes |= Replace(&live->weight, terms.weight);
  changes |= Replace(&live->burst_ns, terms.burst_ns);
  changes |= Replace(&live->floor, terms.floor);
  if (!changes) return;
  constexpr const char* kWords[] = {"normal", "low", "high"};
  GPUFENCE_LOG(kInfo, "core limits: priority %s, weight %u, burst %llu ns, floor %u.%03u %%",
               kWords[static_cast<size_t>(terms.priority)], terms.weight,
               static_cast<unsigned long long>(terms.burst_ns), terms.floor / 1000,
               terms.floor % 1000);
}

// The container's terms: what is set beats what was given, up to the ceiling; and whether it is
// frozen.
void FollowTerms(CoreLimits* limits) {
  CoreTerms terms = limits->own_terms;
  const CoreTerms& most = limits->terms_ceiling;
  const SetTerms set = limits->set != nullptr ? limits->set->Terms() : SetTerms{};
  limits->frozen = set.frozen;
  if (set.priority.has_value()) {
    const auto wanted = static_cast<CorePriority>(*set.priority);
    terms.priority = RankOf(wanted) < RankOf(most.priority) ? wanted : most.priority;
  }
  if (set.weight.has_value()) terms.weight = SetBelow(*set.weight, uint32_t{1}, most.weight);
  if (set.burst_ns.has_value()) {
    terms.burst_ns = SetBelow(*set.burst_ns, kNoBurstNs, most.burst_ns);
  }
  if (set.floor.has_value()) terms.floor = SetBelow(*set.floor, kNoFloor, most.floor);
  KeepTerms(&limits->terms, terms);
}

// Processes of several users do not all have the same rights there; they still share one limit.
void SayAlone(const char* folder, const char* why) {
  GPUFENCE_LOG(
      kWarn,
      "GPUFENCE_NODE_DIR='%s' is not used: %s. The core limit holds, and without turns: time "
      "spent queued behind other containers is charged, too. Mount a folder there that "
      "all containers of the GPU can write to",
      folder, why);
}

bool Sit(Cores* cores, CoreClaim* claim, CoreShares imposed, char* why, size_t why_bytes) {
  const CoreLimits& limits = cores->limits;
  RegionPlaces own = {{}, limits.container};
  for (size_t i = 0; i < RegionPlaces::kMost && limits.folders[i][0] != '\0'; ++i) {
    own.folders[i] = limits.folders[i];
  }
  const uint32_t count = cores->count.load(std::memory_order_relaxed);
  CoreDevice* device = &cores->devices[count];
  const CoreShares shares = claim->own.hard == 0 ? CoreShares{kWholeShare, 0} : claim->own;
  if (!device->seat.Join(limits.node_folder, own, claim->uuid, shares.hard, shares.soft, NowNs(),
                         why, why_bytes, imposed)) {
    return false;
  }
  if (limits.node_folder[0] != '\0' && !device->seat.shares_device()) {
    SayAlone(limits.node_folder, why);
  }
  device->seat.Share(claim->together);
  memcpy(device->uuid, claim->uuid, sizeof device->uuid);
  device->ordinal = claim->ordinal;
  device->activity = claim->activity;
  device->closed.store(1, std::memory_order_relaxed);
  claim->device = device;
  claim->imposed = imposed;
  cores->count.store(count + 1, std::memory_order_release);
  return true;
}

// Begins, changes or ends the limit of one device, and freezes it or lets it go on. False: it
// cannot be held.
bool Enforce(Cores* cores, CoreClaim* claim, char* why, size_t why_bytes) {
  const CoreShares imposed = Imposed(&cores->limits, *claim);
  const uint32_t hard = imposed.hard != 0 ? imposed.hard : claim->own.hard;
  const bool frozen = cores->limits.frozen;
  const bool limited = (hard != 0 && hard < kWholeShare) || frozen;
  if (!limited && claim->device == nullptr) return true;
  if (claim->device == nullptr && !Sit(cores, claim, imposed, why, why_bytes)) return false;
  CoreDevice* device = claim->device;
  if (imposed.hard != claim->imposed.hard || imposed.soft != claim->imposed.soft) {
    device->seat.Impose(imposed, NowNs());
    claim->imposed = imposed;
  }
  device->frozen.store(frozen ? 1 : 0, std::memory_order_release);
  FutexWakeAll(&device->frozen);
  // Without a limit nobody asks the device; who waits there sees it and goes.
  cores->by_ordinal[claim->ordinal].store(limited ? device : nullptr, std::memory_order_release);
  device->closed.store(1, std::memory_order_release);
  device->progress.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&device->progress);
  return true;
}

void Keep(CoreLimits* limits, const Claims& claims, const RegionPlaces& own) {
  memcpy(limits->node_folder, claims.node_folder, sizeof limits->node_folder);
  snprintf(limits->container, sizeof limits->container, "%s", own.container);
  limits->own_terms = claims.terms;
  limits->terms_ceiling = claims.terms_ceiling;
  for (size_t i = 0; i < RegionPlaces::kMost && own.folders[i] != nullptr; ++i) {
    snprintf(limits->folders[i], sizeof limits->folders[i], "%s", own.folders[i]);
  }
}

// What is set beats what was given, also where it cannot be held: then it is said, and the work
// goes on as it did.
[[gnu::noinline]] void FollowSlowly(Cores* cores, bool waits) {
  CoreLimits* limits = &cores->limits;
  if (limits->changing.exchange(1, std::memory_order_acquire) != 0) {
    // Or one more kernel would begin in a container that was frozen before it was launched.
    if (waits) FutexWait(&limits->changing, 1, kMostFollowNs);
    return;
  }
  const uint32_t epoch = cores->limit_epoch->load(std::memory_order_acquire);
  if (limits->set->ReadNewer(limits->region) == LimitsFound::kDamaged) {
    GPUFENCE_LOG(
        kWarn,
        "the container's limits file is damaged: the limits read from it before stay in force. Set "
        "them anew with `gpufence set NAME --reset`");
  }
  FollowTerms(limits);
  char why[kWhyBytes] = "";
  for (uint32_t i = 0; i < limits->count; ++i) {
    if (Enforce(cores, &limits->claims[i], why, sizeof why)) continue;
    GPUFENCE_LOG(kError, "device %u: %s is not held: %s. Mend that, or restart the program",
                 limits->claims[i].ordinal,
                 limits->frozen ? "`gpufence freeze`" : "the core limit that was set", why);
  }
  cores->seen_epoch.store(epoch, std::memory_order_relaxed);
  limits->changing.store(0, std::memory_order_release);
  FutexWakeAll(&limits->changing);
}

}  // namespace

// A callback of the driver's that comes while the thread is at the markers puts its work into the
// stream as a part of what is being marked.
Cores* ActiveCores() {
  Cores* cores = the_cores.load(std::memory_order_acquire);
  if (cores == nullptr || held_futex_locks != 0 ||
      cores->count.load(std::memory_order_acquire) == 0)
    return nullptr;
  return cores;
}

Cores* LaunchCores() {
  Cores* cores = the_cores.load(std::memory_order_acquire);
  if (cores == nullptr || held_futex_locks != 0) return nullptr;
  FollowLimits(cores, /*waits=*/true);
  return cores->count.load(std::memory_order_acquire) == 0 ? nullptr : cores;
}

void FollowLimits(Cores* cores, bool waits) {
  const std::atomic<uint32_t>* epoch = cores->limit_epoch;
  if (epoch == nullptr) return;
  const uint32_t seen = cores->seen_epoch.load(std::memory_order_relaxed);
  if (epoch->load(std::memory_order_relaxed) != seen) FollowSlowly(cores, waits);
}

bool OpenCores(const Claims& claims, const RegionPlaces& own, const RegionFile& file,
               LimitsFile* set_limits, const DeviceIdentity* devices, const DeviceLimits* limits,
               Activity* const* activities, size_t count, char* why, size_t why_bytes) {
  Cores* cores = CoresMemory();
  if (cores == nullptr) {
    snprintf(why, why_bytes, "the host has no memory left to keep the core limits in");
    return false;
  }
  CoreLimits* kept = &cores->limits;
  Keep(kept, claims, own);
  kept->region = file.region;
  kept->set = set_limits;
  cores->seen_epoch.store(file.region->header.limit_epoch.load(std::memory_order_acquire),
                          std::memory_order_relaxed);
  if (set_limits != nullptr) set_limits->ReadNewer(file.region);
  FollowTerms(kept);
  for (size_t i = 0; i < count; ++i) {
    if (devices[i].ordinal >= kMostLimitedDevices) continue;
    CoreClaim* claim = &kept->claims[kept->count++];
    memcpy(claim->uuid, devices[i].uuid, sizeof claim->uuid);
    claim->ordinal = devices[i].ordinal;
    claim->together = devices[i].is_mps ? Together::kSideBySide : Together::kBySlices;
    claim->activity = activities[i];
    claim->own = {limits[i].core_millipercent, limits[i].core_soft_millipercent};
    claim->ceiling = {limits[i].core_ceiling_millipercent,
                      limits[i].core_soft_ceiling_millipercent};
    if (!Enforce(cores, claim, why, why_bytes)) return false;
    if (limits[i].core_millipercent == 0) continue;
    GPUFENCE_LOG(kInfo, "device %u: core limit %u.%03u %% (%s)", devices[i].ordinal,
                 limits[i].core_millipercent / 1000, limits[i].core_millipercent % 1000,
                 limits[i].core_source);
  }
  if (set_limits != nullptr) cores->limit_epoch = &file.region->header.limit_epoch;
  return true;
}

}  // namespace gpufence
