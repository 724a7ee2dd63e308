#include "config/vgpu_manager.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "config/claims.h"
#include "config/gpu_names.h"
#include "config/grammar.h"
#include "config/sources.h"
#include "config/text.h"

namespace gpufence {
namespace {

// Layout 1 of vgpu-manager 1.0.0; little endian, as every machine we build for.
constexpr uint32_t kMagic = 0x56474346;
constexpr uint32_t kLayout = 1;
constexpr size_t kDevicesAt = 512;
constexpr size_t kDeviceBytes = 128;
constexpr size_t kPodUidAt = 128;
constexpr size_t kContainerAt = 304;

uint32_t Word(const char* bytes) {
  uint32_t word = 0;
  memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t LongWord(const char* bytes) {
  uint64_t word = 0;
  memcpy(&word, bytes, sizeof word);
  return word;
}

// A text in a field of fixed size, ended by a NUL or by the field.
std::string_view Field(const char* bytes, size_t size) { return {bytes, strnlen(bytes, size)}; }

bool ReadFlag(const char* bytes, bool* flag) {
  const uint32_t word = Word(bytes);
  *flag = word == 1;
  return word <= 1;
}

bool IsPercent(uint32_t percent) { return percent >= 1 && percent <= 100; }

const char* ReadDevice(const char* bytes, VgpuDevice* device) {
  *device = VgpuDevice{};
  if (!ReadFlag(bytes + 96, &device->active)) return "has a flag that is neither 0 nor 1";
  if (!device->active) return nullptr;
  if (!ReadFlag(bytes + 80, &device->limits_cores) || !ReadFlag(bytes + 84, &device->hard_cores) ||
      !ReadFlag(bytes + 88, &device->limits_memory) || !ReadFlag(bytes + 92, &device->oversold)) {
    return "has a flag that is neither 0 nor 1";
  }
  if (!ParseUuid(Field(bytes + 8, 48), device->uuid)) return "has a GPU UUID that cannot be read";
  device->total_bytes = LongWord(bytes + 56);
  device->real_bytes = LongWord(bytes + 64);
  device->hard_percent = Word(bytes + 72);
  device->soft_percent = Word(bytes + 76);
  if (device->limits_memory &&
      (device->total_bytes == 0 || device->total_bytes > uint64_t{INT64_MAX})) {
    return "has a memory limit that is not a size";
  }
  if (device->limits_cores && (!IsPercent(device->hard_percent) ||
                               (!device->hard_cores && !IsPercent(device->soft_percent)))) {
    return "has a core limit that is not a percentage";
  }
  return nullptr;
}

}  // namespace

const char* ReadVgpuRecord(std::string_view bytes, VgpuRecord* record) {
  const char* start = bytes.data();
  if (bytes.size() < kVgpuRecordBytes) return "is too short";
  if (Word(start) != kMagic) return "does not start as vgpu-manager writes it";
  if (Word(start + 4) != kLayout) return "has an unknown layout version";
  if (Word(start + 8) != kVgpuRecordBytes) return "has an unknown size";
  if (Word(start + 12) != kVgpuDevices) return "has an unknown number of devices";
  record->pod_uid = Field(start + kPodUidAt, 48);
  record->container = Field(start + kContainerAt, 64);
  record->stable = true;
  for (size_t i = 0; i < kVgpuDevices; ++i) {
    const char* device = start + kDevicesAt + i * kDeviceBytes;
    record->stable = record->stable && Word(device) % 2 == 0;
  }
  if (!record->stable) return nullptr;
  for (size_t i = 0; i < kVgpuDevices; ++i) {
    const char* wrong = ReadDevice(start + kDevicesAt + i * kDeviceBytes, &record->devices[i]);
    if (wrong != nullptr) return wrong;
  }
  return nullptr;
}

namespace {

constexpr int kMostReads = 100;

// Reads vgpu.config until two reads agree and no device is being written. Null or a clause.
const char* ReadStableRecord(Reading* reading, bool* missing, bool* is_operators,
                             VgpuRecord* record) {
  auto& buffers = reading->scratch->record_file;
  std::string_view before;
  for (int turn = 0; turn < kMostReads; ++turn) {
    std::string_view now;
    const FileResult result =
        ReadWholeFile(reading->sources->root, kVgpuConfigPath, buffers[turn % 2], sizeof buffers[0],
                      &now, is_operators);
    *missing = result == FileResult::kMissing;
    if (*missing) return nullptr;
    if (result == FileResult::kTooLarge) return "is too large";
    if (result != FileResult::kRead) return "cannot be read";
    const char* wrong = ReadVgpuRecord(now, record);
    if (turn > 0 && now == before && (wrong != nullptr || record->stable)) return wrong;
    before = now;
    if (turn > 1) sched_yield();
  }
  return "changes each time it is read";
}

// A device of the record, and whose word it is.
struct Recorded {
  const VgpuDevice& device;
  size_t index;
  bool is_operators;
};

bool AddVgpuClaim(Reading* reading, const Recorded& recorded, ClaimKind kind, uint64_t amount) {
  Claim claim{};
  claim.kind = kind;
  claim.target = ClaimTarget::kUuid;
  claim.dialect = static_cast<uint8_t>(Dialect::kVgpuManager);
  claim.index = static_cast<uint32_t>(recorded.index);
  memcpy(claim.uuid, recorded.device.uuid, sizeof claim.uuid);
  claim.amount = amount;
  claim.is_ceiling = recorded.is_operators;
  snprintf(claim.source, sizeof claim.source, "device %zu in %s", recorded.index, kVgpuConfigPath);
  return AddClaim(reading, claim);
}

bool AddVgpuDevice(Reading* reading, const Recorded& recorded) {
  const VgpuDevice& device = recorded.device;
  if (!AddVgpuClaim(reading, recorded, ClaimKind::kMemory,
                    device.limits_memory ? device.total_bytes : 0)) {
    return false;
  }
  if (device.limits_cores) {
    const uint64_t hard = device.hard_percent == 100 ? 0 : device.hard_percent;
    if (!AddVgpuClaim(reading, recorded, ClaimKind::kCores, hard * kThousand)) return false;
    if (!device.hard_cores &&
        !AddVgpuClaim(reading, recorded, ClaimKind::kSoftCores, device.soft_percent * kThousand)) {
      return false;
    }
  }
  if (!device.oversold || !device.limits_memory) return true;
  const bool has_ratio = device.real_bytes > 0 && device.real_bytes < device.total_bytes;
  using Wide = unsigned __int128;
  const Wide ratio = has_ratio ? Wide{device.total_bytes} * kThousand / device.real_bytes : 1;
  return AddVgpuClaim(reading, recorded, ClaimKind::kOversubscribe,
                      ratio > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(ratio));
}

// A stale file overrules new variables without a word; ours says one.
void CompareWithVariables(Reading* reading, const VgpuRecord& record) {
  const Statements& statements = reading->statements();
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    const Option& option = *statement.option;
    if (option.dialect != Dialect::kVgpuManager || option.setting != Setting::kMemory ||
        statement.target != ClaimTarget::kOrdinal || statement.index >= kVgpuDevices) {
      continue;
    }
    const VgpuDevice& device = record.devices[statement.index];
    const uint64_t in_file = device.active && device.limits_memory ? device.total_bytes : 0;
    Size size{};
    const bool readable =
        statement.text.empty() || ParseSize(statement.text, &size) == Fault::kNone;
    if (readable && !size.percent_of_device && size.amount == in_file) continue;
    char source[kSourceBytes];
    DescribeStatement(statements, statement, source);
    AddNote(reading->claims, "%s has no effect: the limit in %s applies", source, kVgpuConfigPath);
    return;
  }
}

}  // namespace

bool ReadVgpuConfig(Reading* reading, Hidden* hidden) {
  VgpuRecord record{};
  bool missing = false;
  bool is_operators = false;
  const char* wrong = ReadStableRecord(reading, &missing, &is_operators, &record);
  if (wrong != nullptr) {
    return reading->complaint.Say("%s %s. Let vgpu-manager write it again, or remove it",
                                  kVgpuConfigPath, wrong);
  }
  if (missing) return true;
  hidden->vgpu_manager = true;
  for (size_t i = 0; i < kVgpuDevices; ++i) {
    const Recorded recorded = {record.devices[i], i, is_operators};
    if (recorded.device.active && !AddVgpuDevice(reading, recorded)) return false;
  }
  CompareWithVariables(reading, record);
  Claims* claims = reading->claims;
  if (claims->container[0] == '\0' && !record.pod_uid.empty() && !record.container.empty()) {
    snprintf(claims->container, sizeof claims->container, "%.*s_%.*s",
             static_cast<int>(record.pod_uid.size()), record.pod_uid.data(),
             static_cast<int>(record.container.size()), record.container.data());
  }
  return true;
}

namespace {

// True when a limit is written for a host index, so that the map matters.
bool NeedsMap(const Statements& statements) {
  for (size_t i = 0; i < statements.count; ++i) {
    const Option& option = *statements.all[i].option;
    if (option.dialect == Dialect::kVgpuManager && option.setting != Setting::kHostDevice &&
        statements.all[i].target == ClaimTarget::kOrdinal) {
      return true;
    }
  }
  return false;
}

}  // namespace

HostDevices::Listing HostDevices::ReadList(std::string_view list) {
  if (list.empty()) return Listing::kNone;
  uint8_t uuids[kMost][16] = {};
  size_t count = 0;
  std::string_view part;
  while (NextPart(&list, ',', &part)) {
    part = Trim(part);
    if (part.empty() && list.empty()) break;
    if (count == kMost || !ParseUuid(part, uuids[count])) return Listing::kUnreadable;
    ++count;
  }
  memcpy(uuids_, uuids, sizeof uuids_);
  mapped_ = true;
  return Listing::kRead;
}

bool HostDevices::Read(Reading* reading) {
  const Statements& statements = reading->statements();
  if (!NeedsMap(statements)) return true;
  constexpr Dialect kManager = Dialect::kVgpuManager;
  Listing listing = ReadList(TextOf(statements, kManager, Setting::kHostDevices));
  if (listing == Listing::kNone) {
    listing = ReadList(TextOf(statements, kManager, Setting::kOldHostDevices));
  }
  if (listing == Listing::kUnreadable) {
    return reading->complaint.Say(
        "MANAGER_VISIBLE_DEVICES or GPU_DEVICES_UUID is no list of at most 64 GPU UUIDs. Write "
        "them with commas");
  }
  // The last resort may also say "all" or count GPUs as NVML does; then NVML's order is meant.
  if (listing == Listing::kNone) {
    ReadList(TextOf(statements, kManager, Setting::kVisibleDevices));
  }
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    if (statement.option->setting != Setting::kHostDevice || statement.text.empty() ||
        statement.target != ClaimTarget::kOrdinal) {
      continue;
    }
    if (statement.index >= kMost || !ParseUuid(Trim(statement.text), uuids_[statement.index])) {
      return Refuse(reading, statement, Fault::kUuid);
    }
    mapped_ = true;
  }
  return true;
}

void HostDevices::Locate(uint32_t index, Claim* claim) const {
  if (!mapped_) {
    claim->target = ClaimTarget::kNvmlIndex;
    claim->index = index;
    return;
  }
  claim->target = ClaimTarget::kUuid;
  claim->index = index;
  if (index < kMost) memcpy(claim->uuid, uuids_[index], sizeof claim->uuid);
}

}  // namespace gpufence
