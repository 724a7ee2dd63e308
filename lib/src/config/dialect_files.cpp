// The files of vgpu-manager, vcuda-hook and Alnair: where they are and what they claim.
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "config/fault.h"
#include "config/file.h"
#include "config/reading.h"
#include "config/share.h"
#include "config/size.h"
#include "config/text.h"
#include "config/vgpu_config.h"
#include "config/yaml.h"

namespace gpufence {
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
  return "is being written all the time";
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
    AddNote(reading->claims, "%s has no effect: %s says otherwise", source, kVgpuConfigPath);
    return;
  }
}

// The first line "vmem:SIZE" of the workspace.
bool FindVmem(std::string_view text, std::string_view* amount) {
  constexpr std::string_view kVmem = "vmem:";
  std::string_view line;
  while (NextPart(&text, '\n', &line)) {
    if (!StartsWith(line, kVmem)) continue;
    *amount = Trim(After(line, kVmem.size()), " \t\r");
    return true;
  }
  return false;
}

bool AddFileClaim(Reading* reading, Dialect dialect, const char* path, std::string_view name,
                  std::string_view text, bool zero_is_limit, bool is_operators) {
  Size size{};
  Fault fault = ParseSize(text, &size);
  if (fault == Fault::kNone && size.amount == 0 && zero_is_limit) fault = Fault::kZero;
  if (fault != Fault::kNone) {
    char why[kSourceBytes];
    DescribeFault(name, text, fault, why, sizeof why);
    return reading->complaint.Say("%s: %s", path, why);
  }
  Claim claim{};
  claim.kind = ClaimKind::kMemory;
  claim.target = ClaimTarget::kEvery;
  claim.dialect = static_cast<uint8_t>(dialect);
  claim.amount = size.amount;
  claim.percent_of_device = size.percent_of_device;
  claim.is_ceiling = is_operators;
  char quoted[kQuoteBytes];
  Quote(text, quoted);
  snprintf(claim.source, sizeof claim.source, "%.*s: %s in %s", static_cast<int>(name.size()),
           name.data(), quoted, path);
  return AddClaim(reading, claim);
}

}  // namespace

bool ReadVgpuConfig(Reading* reading, Hidden* hidden) {
  VgpuRecord record{};
  bool missing = false;
  bool is_operators = false;
  const char* wrong = ReadStableRecord(reading, &missing, &is_operators, &record);
  if (wrong != nullptr) {
    return reading->complaint.Say("%s %s. Have vgpu-manager write it anew, or take it away",
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

bool ReadVcudaFile(Reading* reading, Hidden* hidden) {
  std::string_view text;
  bool is_operators = false;
  auto& buffer = reading->scratch->yaml_file;
  const FileResult result = ReadWholeFile(reading->sources->root, kVcudaPath, buffer, sizeof buffer,
                                          &text, &is_operators);
  if (result == FileResult::kMissing) return true;
  if (result != FileResult::kRead) {
    return reading->complaint.Say("%s cannot be read or is too large. Write `memory_limit: 10GiB`",
                                  kVcudaPath);
  }
  YamlEntry entries[] = {
      {{"memory_limit", "memoryLimit", ""}, false, {}},
      {{"device_name", "target_device", "target_device_name"}, false, {}},
  };
  const size_t broken = ReadYamlMap(text, entries, 2);
  if (broken != 0) {
    return reading->complaint.Say("%s line %zu cannot be read. Write `memory_limit: 10GiB`",
                                  kVcudaPath, broken);
  }
  if (entries[1].found) {
    snprintf(reading->claims->device_name, sizeof reading->claims->device_name, "%.*s",
             static_cast<int>(entries[1].scalar.size()), entries[1].scalar.data());
  }
  if (!entries[0].found) return true;
  hidden->vcuda_memory = true;
  return AddFileClaim(reading, Dialect::kVcuda, kVcudaPath, "memory_limit", entries[0].scalar,
                      /*zero_is_limit=*/false, is_operators);
}

bool ReadAlnairWorkspace(Reading* reading, Hidden* hidden) {
  const Statements& statements = reading->statements();
  hidden->alnair = TextOf(statements, Dialect::kAlnair, Setting::kId).empty();
  if (hidden->alnair) return true;
  std::string_view folder = TextOf(statements, Dialect::kAlnair, Setting::kWorkspace);
  if (folder.empty()) folder = kAlnairFolder;
  char path[160];
  const int length =
      snprintf(path, sizeof path, "%.*s/limits", static_cast<int>(folder.size()), folder.data());
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) {
    return reading->complaint.Say("ALNAIR_WORKSPACE_PATH is too long. Name a shorter path");
  }
  std::string_view text;
  std::string_view amount;
  bool is_operators = false;
  auto& buffer = reading->scratch->workspace_file;
  if (ReadWholeFile(reading->sources->root, path, buffer, sizeof buffer, &text, &is_operators) !=
          FileResult::kRead ||
      !FindVmem(text, &amount)) {
    return reading->complaint.Say(
        "ALNAIR_ID is set, but %s holds no readable line vmem:BYTES. Mount the workspace", path);
  }
  return AddFileClaim(reading, Dialect::kAlnair, path, "vmem", amount, /*zero_is_limit=*/true,
                      is_operators);
}

}  // namespace gpufence
