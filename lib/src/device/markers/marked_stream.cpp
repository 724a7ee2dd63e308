#include "device/markers/marked_stream.h"

#include <algorithm>

#include "base/futex.h"
#include "base/tuning.h"

namespace gpufence {
namespace {

// Nothing is known of what was put into a stream before its first launch.
constexpr uint32_t kUnknownOthers = 1u << 30;

}  // namespace

void MarkedStream::BeginLife(uint32_t seed) {
  // Who found the last one here may be about to count a launch: then this tells.
  word.store((word.load(std::memory_order_relaxed) + kLifeOne) & kLife, std::memory_order_relaxed);
  mark_at.store(1, std::memory_order_relaxed);
  every = 1;
  first = last = 0;
  is_timed = is_trusted = is_fresh = goes_on = is_left = false;
  recorder = Recorder::kNobody;
  next_tells = Tells::kNothing;
  others_put = kUnknownOthers;
  others_over = 0;
  failures = 0;
  queued = tail_seen = inner_ns = 0;
  idle_since_ns = deducted_ns = ns_per_launch = mean_ns = ran_ns = 0;
  steady = mean_of = 0;
  by_host = awaited = marks_each = meets = mixes = whole = false;
  came_ns = spaced_ns = 0;
  behind = 0;
  begin_gpu_ns = 0;
  random = seed;
  waited = {};
  closed_runs = {};
  gaps = {};
  samples = {};
  logged = yields_at = log.count();
  holds_at = 0;
}

void MarkedStream::Uncount(uint32_t counted_in) {
  uint32_t seen = word.load(std::memory_order_relaxed);
  while (((seen ^ counted_in) & kLife) == 0 && (seen & kLaunches) != 0 &&
         !word.compare_exchange_weak(seen, seen - 1, std::memory_order_relaxed)) {
  }
}

bool MarkedStream::HasRoom() const {
  const uint64_t launches =
      queued.load(std::memory_order_relaxed) + (word.load(std::memory_order_relaxed) & kLaunches);
  const uint32_t others =
      others_put.load(std::memory_order_relaxed) - others_over.load(std::memory_order_relaxed);
  return launches + others < kTuning.full_queue / 2;
}

bool MarkedStream::IsStuck() const {
  return QueuedLaunches() >= kTuning.full_queue &&
         NowNs() > run_begin_ns.load(std::memory_order_relaxed) + kTuning.lately_ns;
}

uint64_t MarkedStream::QueuedLaunches() const {
  return queued.load(std::memory_order_relaxed) +
         (word.load(std::memory_order_relaxed) & kLaunches);
}

uint64_t MarkedStream::UsualNs() const {
  const uint64_t lately_ns = ns_per_launch.load(std::memory_order_relaxed);
  if (lately_ns == 0) return kTuning.unknown_launch_ns;
  return std::max(mean_ns.load(std::memory_order_relaxed), lately_ns / 4);
}

uint64_t MarkedStream::QueuedNs() const {
  const bool known = is_trusted.load(std::memory_order_relaxed);
  return QueuedLaunches() * (known ? UsualNs() : std::max(UsualNs(), kTuning.spacing_ns));
}

uint64_t MarkedStream::ShortQueueNs(const LaunchLengths& lengths, uint64_t now_ns) const {
  const uint64_t all_ns = lengths.OfNs(log, log.count(), QueuedLaunches(), UsualNs());
  // What runs since the last marker that was seen is on its way, unless somebody else has the GPU.
  const uint64_t ran_ns =
      std::min(now_ns - std::min(now_ns, run_begin_ns.load(std::memory_order_relaxed)),
               kTuning.inferior_queue_ns);
  return all_ns - std::min(all_ns, ran_ns);
}

uint64_t MarkedStream::LeadNs() const {
  const uint64_t until_ns = launched_ns.load(std::memory_order_relaxed);
  return until_ns > waited.marked_ns ? std::min(until_ns - waited.marked_ns, kTuning.most_lead_ns)
                                     : 0;
}

void MarkedStream::FallBehind() {
  behind.store(kTuning.behind_launches, std::memory_order_relaxed);
  marks_each.store(true, std::memory_order_relaxed);
  word.fetch_or(kSparse, std::memory_order_relaxed);
}

void MarkedStream::Space(uint32_t launches) {
  every = launches;
  if (mark_at.load(std::memory_order_relaxed) > launches + launches / 2) {
    mark_at.store(launches, std::memory_order_relaxed);
  }
}

void MarkedStream::CountDown(uint32_t launches) {
  const uint32_t left = mark_at.load(std::memory_order_relaxed);
  mark_at.store(left > launches ? left - launches : 1, std::memory_order_relaxed);
}

uint32_t MarkedStream::Random() {
  uint32_t x = random;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return random = x;
}

}  // namespace gpufence
