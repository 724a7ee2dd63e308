#include "config/host_devices.h"

#include <string.h>

#include "config/text.h"
#include "config/uuid.h"

namespace gpufence {
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
