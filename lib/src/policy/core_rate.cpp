#include "policy/core_rate.h"

#include <algorithm>

#include "policy/share.h"

namespace gpufence {
namespace {

// A mean over the last few of these.
constexpr uint64_t kRateNs = 20'000'000;
constexpr uint64_t kSoFarNs = 100'000'000;
constexpr uint64_t kMostRateNs = 1'000'000'000;

}  // namespace

void NoteRate(CoreTenant* tenant, uint32_t at_least, uint64_t now_ns) {
  const uint64_t charged_ns = tenant->charged_ns.load(std::memory_order_relaxed);
  const uint64_t last_ns = tenant->rate_ns.load(std::memory_order_relaxed);
  uint64_t rate = std::min<uint64_t>(RateOf(*tenant), kWholeShare);
  const uint64_t passed_ns = now_ns - last_ns;
  if (last_ns > now_ns || passed_ns >= kRateNs) {
    const uint64_t before_ns = tenant->rate_charged_ns.load(std::memory_order_relaxed);
    const uint64_t more_ns = charged_ns - std::min(charged_ns, before_ns);
    if (last_ns < now_ns && passed_ns < kMostRateNs) {
      rate = (rate + std::min(more_ns * kWholeShare / passed_ns, uint64_t{kWholeShare})) / 2;
    }
    tenant->rate_ns.store(now_ns, std::memory_order_relaxed);
    tenant->rate_charged_ns.store(charged_ns, std::memory_order_relaxed);
  }
  tenant->rate.store(std::max<uint64_t>(rate, at_least), std::memory_order_relaxed);
}

uint32_t RateSoFar(const CoreTenant& tenant) {
  const uint64_t charged_ns = tenant.charged_ns.load(std::memory_order_relaxed);
  const uint64_t before_ns = tenant.rate_charged_ns.load(std::memory_order_relaxed);
  const uint64_t more_ns = std::min(charged_ns - std::min(charged_ns, before_ns), kSoFarNs);
  return std::max(RateOf(tenant), static_cast<uint32_t>(more_ns * kWholeShare / kSoFarNs));
}

}  // namespace gpufence
