#include "config/device_limits.h"

#include <stdio.h>
#include <string.h>

#include <atomic>

#include "config/gpu_names.h"
#include "config/grammar.h"
#include "config/sources.h"

namespace gpufence {
namespace {

uint64_t AmountOn(const Claim& claim, const DeviceIdentity& device) {
  return claim.percent_of_device ? PartOf(device.total_bytes, claim.amount) : claim.amount;
}

// True when `claim` hides `chosen`, both of one dialect.
bool Hides(const Claim& claim, uint64_t amount, const Chosen& chosen) {
  if (chosen.claim == nullptr) return true;
  if (claim.layer != chosen.claim->layer) return claim.layer < chosen.claim->layer;
  if (claim.target != chosen.claim->target) return claim.target > chosen.claim->target;
  return amount != 0 && (chosen.amount == 0 || amount < chosen.amount);
}

}  // namespace

bool Concerns(const Claim& claim, const DeviceIdentity& device) {
  switch (claim.target) {
    case ClaimTarget::kEvery:
      return true;
    case ClaimTarget::kOrdinal:
      return claim.index == device.ordinal;
    case ClaimTarget::kNvmlIndex:
      return device.nvml_index >= 0 && claim.index == static_cast<uint32_t>(device.nvml_index);
    case ClaimTarget::kUuid:
      return !device.lacks_uuid && memcmp(claim.uuid, device.uuid, sizeof claim.uuid) == 0;
  }
  return false;
}

ByDialect ChooseInDialects(const Claims& claims, ClaimKind kind, const DeviceIdentity& device) {
  ByDialect chosen = {};
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& claim = claims.claims[i];
    if (claim.kind != kind || !Concerns(claim, device)) continue;
    const uint64_t amount = AmountOn(claim, device);
    Chosen* one = &chosen.of[claim.dialect];
    if (Hides(claim, amount, *one)) *one = {&claim, amount};
  }
  return chosen;
}

Chosen LowestOf(const ByDialect& by_dialect, Conflict* first) {
  Chosen lowest = {};
  *first = {};
  for (const Chosen& chosen : by_dialect.of) {
    if (chosen.claim == nullptr || chosen.claim->amount == 0) continue;
    if (lowest.claim == nullptr) {
      lowest = chosen;
    } else if (chosen.amount != lowest.amount) {
      const bool is_lower = chosen.amount < lowest.amount;
      if (first->lower.claim == nullptr) {
        *first = is_lower ? Conflict{chosen, lowest} : Conflict{lowest, chosen};
      }
      if (is_lower) lowest = chosen;
    }
  }
  return lowest;
}

ByDialect RiseOf(const ByDialect& hard, const ByDialect& soft) {
  ByDialect rise = soft;
  for (size_t d = 0; d < kDialectCount; ++d) {
    const bool rises = soft.of[d].amount > hard.of[d].amount && hard.of[d].amount > 0;
    if (!rises) rise.of[d] = hard.of[d];
  }
  return rise;
}

namespace {

// One resolution: its inputs, and what was said already.
struct Resolution {
  const Claims& claims;
  const DeviceIdentity* devices;
  size_t device_count;
  void (*warn)(const char* text);
  Complaint complaint;
  bool warned_conflict;
  bool warned_clamp;
};

void WarnOfConflict(Resolution* resolution, const Chosen& lower, const Chosen& higher) {
  if (resolution->warned_conflict) return;
  resolution->warned_conflict = true;
  char text[2 * kSourceBytes + 64];
  snprintf(text, sizeof text, "%s applies, because it is lower than %s", lower.claim->source,
           higher.claim->source);
  resolution->warn(text);
}

// The lowest of the dialects that name a limit, with a warning.
Chosen Lowest(Resolution* resolution, const ByDialect& by_dialect) {
  Conflict first;
  const Chosen lowest = LowestOf(by_dialect, &first);
  if (first.lower.claim != nullptr) WarnOfConflict(resolution, first.lower, first.higher);
  return lowest;
}

// What the files of operators allow at most; 0: anything.
uint64_t CeilingOf(const ByDialect& by_dialect) {
  uint64_t ceiling = 0;
  for (const Chosen& chosen : by_dialect.of) {
    if (chosen.claim == nullptr || !chosen.claim->is_ceiling || chosen.amount == 0) continue;
    if (ceiling == 0 || chosen.amount < ceiling) ceiling = chosen.amount;
  }
  return ceiling;
}

Chosen Choose(Resolution* resolution, ClaimKind kind, const DeviceIdentity& device) {
  return Lowest(resolution, ChooseInDialects(resolution->claims, kind, device));
}

bool LimitMemory(Resolution* resolution, const DeviceIdentity& device, DeviceLimits* limits) {
  const ByDialect memory = ChooseInDialects(resolution->claims, ClaimKind::kMemory, device);
  const uint64_t ceiling_bytes = CeilingOf(memory);
  limits->memory_ceiling_bytes = ceiling_bytes == 0 ? kUnlimitedBytes : ceiling_bytes;
  const Chosen chosen = Lowest(resolution, memory);
  if (chosen.claim == nullptr) return true;
  if (chosen.amount == 0) {
    return resolution->complaint.Say("%s is less than one byte of the GPU. Write more",
                                     chosen.claim->source);
  }
  limits->memory_bytes = chosen.amount;
  if (limits->oversubscribe == 0 && device.total_bytes > 0 && chosen.amount > device.total_bytes) {
    limits->memory_bytes = device.total_bytes;
    if (!resolution->warned_clamp) {
      char text[kNoteBytes];
      snprintf(text, sizeof text, "%s is more than the GPU has: the limit is its %llu bytes",
               chosen.claim->source, static_cast<unsigned long long>(device.total_bytes));
      resolution->warn(text);
    }
    resolution->warned_clamp = true;
  }
  memcpy(limits->memory_source, chosen.claim->source, sizeof limits->memory_source);
  return true;
}

void LimitCores(Resolution* resolution, const DeviceIdentity& device, DeviceLimits* limits) {
  const ByDialect hard = ChooseInDialects(resolution->claims, ClaimKind::kCores, device);
  const ByDialect ceiling =
      RiseOf(hard, ChooseInDialects(resolution->claims, ClaimKind::kSoftCores, device));
  // Who claims the hard share of a dialect decides whose word its soft one is.
  ByDialect allowed = ceiling;
  for (size_t d = 0; d < kDialectCount; ++d) {
    if (allowed.of[d].claim != nullptr) allowed.of[d].claim = hard.of[d].claim;
  }
  limits->core_ceiling_millipercent = static_cast<uint32_t>(CeilingOf(hard));
  limits->core_soft_ceiling_millipercent = static_cast<uint32_t>(CeilingOf(allowed));
  const Chosen share = Lowest(resolution, hard);
  const Chosen soft = Lowest(resolution, ceiling);
  if (share.claim == nullptr) return;
  limits->core_millipercent = static_cast<uint32_t>(share.amount);
  memcpy(limits->core_source, share.claim->source, sizeof limits->core_source);
  if (soft.amount <= share.amount) return;
  limits->core_soft_millipercent = static_cast<uint32_t>(soft.amount);
  memcpy(limits->core_soft_source, soft.claim->source, sizeof limits->core_soft_source);
}

void Oversubscribe(Resolution* resolution, const DeviceIdentity& device, DeviceLimits* limits) {
  Chosen chosen = Choose(resolution, ClaimKind::kOversubscribe, device);
  if (chosen.claim == nullptr) chosen = Choose(resolution, ClaimKind::kSpill, device);
  if (chosen.claim == nullptr) return;
  limits->oversubscribe = chosen.amount;
  memcpy(limits->oversubscribe_source, chosen.claim->source, sizeof limits->oversubscribe_source);
}

bool AnyDevice(const Resolution& resolution, const Claim& claim) {
  for (size_t d = 0; d < resolution.device_count; ++d) {
    if (Concerns(claim, resolution.devices[d])) return true;
  }
  return false;
}

bool NvmlKnown(const Resolution& resolution) {
  for (size_t d = 0; d < resolution.device_count; ++d) {
    if (resolution.devices[d].nvml_index >= 0) return true;
  }
  return false;
}

// A claim by CUDA ordinal beside which another GPU is claimed another amount; null: there is none.
const Claim* UnequalOrdinal(const Claims& claims) {
  for (size_t i = 0; i < claims.count; ++i) {
    const Claim& one = claims.claims[i];
    if (one.target != ClaimTarget::kOrdinal) continue;
    for (size_t j = 0; j < claims.count; ++j) {
      const Claim& other = claims.claims[j];
      const bool elsewhere = other.target == ClaimTarget::kOrdinal && other.index != one.index;
      if (elsewhere && other.kind == one.kind && other.dialect == one.dialect &&
          (other.amount != one.amount || other.percent_of_device != one.percent_of_device)) {
        return &one;
      }
    }
  }
  return nullptr;
}

// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER renumber CUDA's GPUs and with them unequal limits.
void WarnOfReordering(Resolution* resolution) {
  const Claim* claim = UnequalOrdinal(resolution->claims);
  for (size_t d = 0; d < resolution->device_count && claim != nullptr; ++d) {
    const DeviceIdentity& device = resolution->devices[d];
    if (device.nvml_index < 0 || device.ordinal == kInvisible ||
        static_cast<uint32_t>(device.nvml_index) == device.ordinal) {
      continue;
    }
    char text[kNoteBytes];
    snprintf(
        text, sizeof text,
        "%.200s numbers GPUs as CUDA does in this process: CUDA's GPU %u is GPU %d of NVML and "
        "nvidia-smi. Name GPUs by UUID",
        claim->source, device.ordinal, device.nvml_index);
    resolution->warn(text);
    return;
  }
}

// A claim that nobody can join to a GPU by its UUID.
bool LacksUuids(const Resolution& resolution, const Claim& claim) {
  if (claim.target != ClaimTarget::kUuid) return false;
  for (size_t d = 0; d < resolution.device_count; ++d) {
    if (resolution.devices[d].lacks_uuid) return true;
  }
  return false;
}

bool IsLimit(const Claim& claim) {
  return claim.kind == ClaimKind::kMemory || claim.kind == ClaimKind::kCores;
}

// A limit for a GPU that is not here is worth a word. It is an error where no other limit is for a
// GPU that is here, since somebody meant one; and where no limit of vgpu.rs finds a GPU, its whole
// map is wrong.
bool CheckTargets(Resolution* resolution) {
  const Claim* stray = nullptr;
  const Claim* stray_limit = nullptr;
  bool any_fits = false;
  const Claim* stray_of_map = nullptr;
  bool map_fits = false;
  for (size_t i = 0; i < resolution->claims.count; ++i) {
    const Claim& claim = resolution->claims.claims[i];
    const bool of_map = claim.dialect == static_cast<uint8_t>(Dialect::kVgpuRs);
    if (claim.target == ClaimTarget::kNvmlIndex && !NvmlKnown(*resolution)) {
      return resolution->complaint.Say(
          "%s numbers GPUs as NVML does, and NVML cannot be used here. Name GPUs by UUID",
          claim.source);
    }
    if (LacksUuids(*resolution, claim)) {
      return resolution->complaint.Say(
          "%s names a GPU by its UUID, which this driver does not report. Name GPUs by index",
          claim.source);
    }
    if (AnyDevice(*resolution, claim)) {
      map_fits = map_fits || of_map;
      any_fits = any_fits || IsLimit(claim);
    } else {
      if (stray == nullptr && claim.amount > 0) stray = &claim;
      if (stray_limit == nullptr && claim.amount > 0 && IsLimit(claim)) stray_limit = &claim;
      if (of_map) stray_of_map = &claim;
    }
  }
  if (stray_of_map != nullptr && !map_fits) {
    return resolution->complaint.Say("%s names none of this process's GPUs. Name GPUs by UUID",
                                     stray_of_map->source);
  }
  if (stray_limit != nullptr && !any_fits) {
    return resolution->complaint.Say(
        "%s is for a GPU that this process does not have, and no limit is for one that it has. "
        "Name GPUs by UUID, as `nvidia-smi -L` lists them here",
        stray_limit->source);
  }
  if (stray != nullptr) {
    char text[kNoteBytes];
    snprintf(text, sizeof text, "%s has no effect: it is for a GPU that this process does not have",
             stray->source);
    resolution->warn(text);
  }
  return true;
}

bool IsChosen(const GpuChoice& choice, const DeviceIdentity& device) {
  for (size_t i = 0; i < choice.count; ++i) {
    if (memcmp(choice.uuids[i], device.uuid, sizeof device.uuid) == 0) return true;
  }
  return false;
}

// vgpu.rs hides the others by CUDA_VISIBLE_DEVICES. The program's environment is not ours to
// change, and a GPU that another pod pays for is not this one's.
bool CheckChoice(Resolution* resolution) {
  const Claims& claims = resolution->claims;
  for (size_t d = 0; d < resolution->device_count && claims.choice.count > 0; ++d) {
    const DeviceIdentity& device = resolution->devices[d];
    if (device.ordinal == kInvisible || IsChosen(claims.choice, device)) continue;
    char given[kUuidTextBytes];
    WriteUuid(claims.choice.uuids[0], given);
    return resolution->complaint.Say(
        "vgpu.rs's hypervisor at %s gives this container %zu of the GPUs, and GPU %u is none of "
        "them. Set CUDA_VISIBLE_DEVICES to those it gives, the first of which is %s",
        claims.hypervisor, claims.choice.count, device.ordinal, given);
  }
  return true;
}

}  // namespace

ConfigResult LimitAndWarn(const Claims& claims, const DeviceIdentity* devices, size_t count,
                          DeviceLimits* limits, void (*warn)(const char* text), char* why,
                          size_t why_bytes) {
  Resolution resolution{claims, devices, count, warn, {why, why_bytes}, false, false};
  for (size_t i = 0; i < claims.note_count; ++i) warn(claims.notes[i]);
  if (!CheckChoice(&resolution) || !CheckTargets(&resolution)) return ConfigResult::kInvalid;
  WarnOfReordering(&resolution);
  for (size_t d = 0; d < count; ++d) {
    limits[d] = DeviceLimits{};
    limits[d].memory_bytes = kUnlimitedBytes;
    Oversubscribe(&resolution, devices[d], &limits[d]);
    if (!LimitMemory(&resolution, devices[d], &limits[d])) return ConfigResult::kInvalid;
    LimitCores(&resolution, devices[d], &limits[d]);
  }
  const bool limited = LimitsMemory(limits, count) || LimitsCores(limits, count);
  return limited ? ConfigResult::kLimits : ConfigResult::kNothing;
}

bool LimitsMemory(const DeviceLimits* limits, size_t count) {
  for (size_t d = 0; d < count; ++d) {
    if (limits[d].memory_bytes != kUnlimitedBytes) return true;
  }
  return false;
}

bool LimitsCores(const DeviceLimits* limits, size_t count) {
  for (size_t d = 0; d < count; ++d) {
    if (limits[d].core_millipercent != 0) return true;
  }
  return false;
}

bool NeedsNvml(const Claims& claims) {
  for (size_t i = 0; i < claims.count; ++i) {
    if (claims.claims[i].target == ClaimTarget::kNvmlIndex) return true;
  }
  return UnequalOrdinal(claims) != nullptr;
}

namespace {

constinit std::atomic<bool> has_warned{false};

void SayNothing(const char*) {}

}  // namespace

ConfigResult LimitDevices(const Claims& claims, const DeviceIdentity* devices, size_t count,
                          DeviceLimits* limits, void (*warn)(const char* text), char* why,
                          size_t why_bytes) {
  // A forked child resolves again; what it would say its parent has said.
  const bool again = has_warned.exchange(true, std::memory_order_relaxed);
  return LimitAndWarn(claims, devices, count, limits, again ? SayNothing : warn, why, why_bytes);
}

}  // namespace gpufence
