#include "config/choose.h"

#include <string.h>

#include "config/size.h"

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

}  // namespace gpufence
