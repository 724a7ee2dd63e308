#include "device/markers/samples.h"

#include <algorithm>

#include "core/slices.h"
#include "device/markers/gaps.h"

namespace gpufence {
namespace {

// Kernels that come as fast as a host can launch, or so seldom, need no samples.
constexpr uint64_t kLeastApartNs = 5'000;
constexpr uint64_t kMostApartNs = 200'000;
// For others to come between, the GPU changes hands twice: that takes 280 us and more (H200).
constexpr uint64_t kUndisturbedNs = 250'000;
// Where all three were queued, it does so only at the end of a slice, for another one.
constexpr uint64_t kAwayNs = kSliceNs + 2 * kSwitchNs;
constexpr uint64_t kDoubtNs = 20'000;  // of what events tell
constexpr uint32_t kLeastSamples = 8;
constexpr uint32_t kMostSamples = 128;  // are remembered, about
constexpr uint64_t kSamplesLastNs = 2'000'000'000;
// One in so many markers once enough are known.
constexpr uint32_t kKnownEvery = 2;

// Of a sample that was queued as a whole, what was no neighbour's slice.
uint64_t WithoutSlicesNs(uint64_t ran_ns) {
  if (ran_ns + kDoubtNs < kAwayNs) return ran_ns;
  constexpr uint64_t kRoundNs = kSliceNs + kAwayNs;
  const uint64_t times = (ran_ns - kSliceNs + kRoundNs - 1) / kRoundNs;
  return ran_ns - std::min(times * kAwayNs, ran_ns);
}

}  // namespace

bool IsSampleDue(const Markers& markers, MarkedStream* stream, uint32_t launches, uint64_t host_ns,
                 uint64_t now_ns) {
  if (!markers.IsBeside(stream->ordinal, now_ns)) return false;
  LaunchSamples* samples = &stream->samples;
  const uint64_t apart_ns = host_ns / std::max(launches, 1u);
  samples->apart_ns = samples->apart_ns == 0 ? apart_ns : (7 * samples->apart_ns + apart_ns) / 8;
  if (samples->apart_ns < kLeastApartNs || samples->apart_ns > kMostApartNs) return false;
  return samples->count < kMostSamples / 2 || ++samples->unsampled % kKnownEvery == 0;
}

void LearnSample(const GpuPauses& pauses, MarkedStream* stream, uint64_t ran_ns, uint64_t lead_ns,
                 uint64_t now_ns) {
  LaunchSamples* samples = &stream->samples;
  if (now_ns - std::min(now_ns, samples->at_ns) > kSamplesLastNs) {
    samples->count = samples->disturbed = 0;
    samples->sum_ns = 0;
  }
  samples->at_ns = now_ns;
  if (samples->count + samples->disturbed >= kMostSamples) {
    samples->sum_ns -= samples->sum_ns / 2;
    samples->count -= samples->count / 2;
    samples->disturbed /= 2;
  }
  if (lead_ns == 0) {
    ran_ns = WithoutSlicesNs(ran_ns);
  } else if (ran_ns > kUndisturbedNs) {
    ++samples->disturbed;
    return;
  }
  ++samples->count;
  const uint64_t around_ns = lead_ns + pauses.around_run_ns;
  samples->sum_ns += ran_ns - std::min(around_ns, ran_ns * 3 / 4);
}

uint64_t SampledNs(const MarkedStream& stream, uint64_t launches, uint64_t now_ns) {
  const LaunchSamples& samples = stream.samples;
  if (samples.count < kLeastSamples || samples.disturbed > samples.count ||
      now_ns - std::min(now_ns, samples.at_ns) > kSamplesLastNs ||
      samples.sum_ns / samples.count > samples.apart_ns) {
    return UINT64_MAX;
  }
  return std::max(launches, uint64_t{1}) * samples.sum_ns / samples.count;
}

}  // namespace gpufence
