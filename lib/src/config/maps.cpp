// vgpu.rs's limits: one JSON object, device -> number.
#include <string.h>

#include "config/fault.h"
#include "config/json.h"
#include "config/reading.h"
#include "config/share.h"
#include "config/uuid.h"

namespace gpufence {
namespace {

bool SameDevice(const Claim& one, const Claim& other) {
  if (one.kind != other.kind || one.dialect != other.dialect || one.target != other.target) {
    return false;
  }
  return one.target == ClaimTarget::kUuid ? memcmp(one.uuid, other.uuid, sizeof one.uuid) == 0
                                          : one.index == other.index;
}

// Target and amount of one member.
Fault ReadMember(std::string_view key, uint64_t number, Claim* claim) {
  if (ParseUuid(key, claim->uuid)) {
    claim->target = ClaimTarget::kUuid;
  } else if (ParseIndex(key, &claim->index)) {
    claim->target = ClaimTarget::kNvmlIndex;
  } else {
    return Fault::kDeviceKey;
  }
  claim->amount = number;
  if (claim->kind == ClaimKind::kCores) {
    if (number > 100) return Fault::kAboveHundred;
    claim->amount = number == 100 ? 0 : number * kThousand;
  }
  return Fault::kNone;
}

bool ReadMap(Reading* reading, const Statement& statement, ClaimKind kind) {
  JsonNumbers json(statement.text);
  Claims* claims = reading->claims;
  const size_t first = claims->count;
  std::string_view key;
  uint64_t number = 0;
  for (;;) {
    const JsonNumbers::Step step = json.Next(&key, &number);
    if (step == JsonNumbers::Step::kEnd) return true;
    if (step == JsonNumbers::Step::kBroken) return Refuse(reading, statement, Fault::kJson);
    if (step == JsonNumbers::Step::kTooLarge) return Refuse(reading, statement, Fault::kTooLarge);
    Claim claim{};
    claim.kind = kind;
    claim.dialect = static_cast<uint8_t>(Dialect::kVgpuRs);
    const Fault fault = ReadMember(key, number, &claim);
    if (fault != Fault::kNone) return Refuse(reading, statement, fault);
    for (size_t i = first; i < claims->count; ++i) {
      if (SameDevice(claims->claims[i], claim)) return Refuse(reading, statement, Fault::kTwice);
    }
    DescribeStatement(reading->statements(), statement, claim.source);
    if (!AddClaim(reading, claim)) return false;
  }
}

}  // namespace

bool ReadMaps(Reading* reading, const Hidden& hidden) {
  if (hidden.vgpu_rs) return true;
  const Statements& statements = reading->statements();
  for (size_t i = 0; i < statements.count; ++i) {
    const Statement& statement = statements.all[i];
    const Setting setting = statement.option->setting;
    if (setting != Setting::kMemoryMap && setting != Setting::kCoresMap) continue;
    if (statement.text.empty()) continue;
    const ClaimKind kind = setting == Setting::kMemoryMap ? ClaimKind::kMemory : ClaimKind::kCores;
    if (!ReadMap(reading, statement, kind)) return false;
  }
  return true;
}

}  // namespace gpufence
