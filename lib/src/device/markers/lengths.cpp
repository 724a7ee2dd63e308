#include "device/markers/lengths.h"

#include <algorithm>

#include "base/tuning.h"

namespace gpufence {
namespace {

// Of what was not expected one part in so many is learned at once. Intervals end in different
// places, so that in time each launch has its own.
constexpr int64_t kSlowness = kTuning.many / 8;

}  // namespace

uint64_t LaunchLengths::KnownNs(uint32_t kind) const {
  const uint64_t word = known_[kind % kKinds].load(std::memory_order_relaxed);
  return word >> 32 == kind ? static_cast<uint32_t>(word) : 0;
}

// At least one, which is not unknown.
void LaunchLengths::Store(uint32_t kind, int64_t ns) {
  const int64_t bounded_ns = std::clamp<int64_t>(ns, 1, UINT32_MAX);
  known_[kind % kKinds].store(uint64_t{kind} << 32 | static_cast<uint64_t>(bounded_ns),
                              std::memory_order_relaxed);
}

uint64_t LaunchLengths::OfNs(const LaunchLog& log, uint32_t end, uint64_t launches,
                             uint64_t usual_ns) const {
  const auto logged = static_cast<uint32_t>(std::min<uint64_t>(launches, LaunchLog::kMost));
  uint64_t ns = (launches - logged) * usual_ns;
  for (uint32_t i = 1; i <= logged; ++i) {
    const uint64_t known_ns = KnownNs(log.At(end - i));
    ns += known_ns != 0 ? known_ns : usual_ns;
  }
  return ns;
}

void LaunchLengths::Learn(const LaunchLog& log, uint32_t end, uint32_t launches, uint64_t ran_ns) {
  const uint32_t behind = log.count() - end;
  if (launches == 0 || behind + launches > LaunchLog::kMost) return;
  uint64_t known_ns = 0;
  uint32_t unknown = 0;
  for (uint32_t i = 1; i <= launches; ++i) {
    const uint64_t ns = KnownNs(log.At(end - i));
    known_ns += ns;
    unknown += ns == 0 ? 1 : 0;
  }
  if (unknown != 0) {
    const auto each_ns = static_cast<int64_t>((ran_ns - std::min(ran_ns, known_ns)) / unknown);
    for (uint32_t i = 1; i <= launches; ++i) {
      if (KnownNs(log.At(end - i)) == 0) Store(log.At(end - i), each_ns);
    }
    return;
  }
  // Somebody else may have had the GPU in between: much more than expected says little.
  const auto more_ns = static_cast<int64_t>(std::min(ran_ns, 2 * known_ns) - known_ns);
  const int64_t each_more_ns = more_ns / (kSlowness * static_cast<int64_t>(launches));
  for (uint32_t i = 1; i <= launches; ++i) {
    const uint32_t kind = log.At(end - i);
    Store(kind, static_cast<int64_t>(KnownNs(kind)) + each_more_ns);
  }
}

}  // namespace gpufence
