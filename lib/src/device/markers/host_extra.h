// What the host's clock adds to a run that is waited for, in the mean over those that nothing but
// that clock told, learned from some that are marked as well. Pure; must not know how they run.
#pragma once

#include <stdint.h>

#include <algorithm>

namespace gpufence {

// Which runs are marked is drawn, by their number alone. A host is late for a while: if one were
// marked after so much time, or because the one before took long, more of those would be marked
// that are late, and the others be charged too little (waits that sleep, H200: 14 % at 10).
class HostExtra {
 public:
  // From the launch's return to the wait's, without kernels; 0: unknown.
  uint64_t ns() const { return ns_; }

  // Whether the next run is to be marked, and teaches.
  bool IsDue() const { return learned_ < kFirst || left_ == 0; }

  // A run that was not.
  void CountTold(uint64_t span_ns) {
    span_ns_ = span_ns_ == 0 ? span_ns : (span_ns_ * (kSpans - 1) + span_ns) / kSpans;
    left_ -= left_ != 0 ? 1 : 0;
  }

  // From a run that was, of which one is due after `spacing_ns` of them in the mean.
  void Learn(uint64_t extra_ns, uint64_t spacing_ns, uint32_t random) {
    learned_ += learned_ < kKnown ? 1 : 0;
    const uint64_t parts = std::min<uint64_t>(learned_, kParts);
    ns_ = std::max(((parts - 1) * ns_ + extra_ns) / parts, uint64_t{1});
    // Those that come first are alike, whatever others are: the next ones follow sooner.
    const uint64_t spaced_ns = spacing_ns * learned_ / kKnown;
    const uint64_t mean = span_ns_ != 0 ? std::min(spaced_ns / span_ns_, kMostLeft) : 0;
    left_ = 1 + random % static_cast<uint32_t>(2 * mean + 1);
  }

 private:
  static constexpr uint32_t kFirst = 4;   // all are due until then: fewer may be chance
  static constexpr uint32_t kKnown = 16;  // so many tell enough
  static constexpr uint64_t kParts = 8;   // of what is known, one is what the next one tells
  static constexpr uint64_t kSpans = 256;
  static constexpr uint64_t kMostLeft = 2'000;

  uint64_t ns_;
  uint64_t span_ns_;  // of a run, in the mean over the last kSpans or so
  uint32_t left_;     // runs until one is due
  uint32_t learned_;  // from so many, up to kKnown
};

}  // namespace gpufence
