#include "policy/soft_share.h"

#include <algorithm>

namespace gpufence {
namespace {

constexpr uint32_t kGrowth = 2'000;

}  // namespace

uint32_t ClaimOf(uint32_t rate, uint32_t hard) {
  const uint64_t claim = rate + uint64_t{rate} / 8 + kGrowth;
  return static_cast<uint32_t>(std::min<uint64_t>(claim, hard));
}

// Whoever has less room than its part leaves the rest to the others.
uint32_t SoftShareOf(SoftTenant own, uint32_t free, const SoftTenant* others, size_t count) {
  bool is_full[kMostSoftTenants] = {};
  count = std::min(count, kMostSoftTenants);
  for (;;) {
    uint64_t weights = own.weight;
    for (size_t i = 0; i < count; ++i) weights += is_full[i] ? 0 : others[i].weight;
    bool fills = false;
    uint32_t left = free;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t room = others[i].soft - std::min(others[i].hard, others[i].soft);
      if (is_full[i] || uint64_t{free} * others[i].weight < uint64_t{room} * weights) continue;
      is_full[i] = fills = true;
      left -= std::min(left, room);
    }
    if (!fills) {
      const auto part = static_cast<uint32_t>(uint64_t{free} * own.weight / weights);
      return std::min(own.soft, own.hard + part);
    }
    free = left;
  }
}

}  // namespace gpufence
