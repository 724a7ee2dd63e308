#include "device/markers/forecast.h"

#include <algorithm>

#include "device/markers/gaps.h"
#include "device/markers/reading.h"

namespace gpufence {
namespace {

// What is overdue is looked at again after such a part of the time that it took so far.
constexpr uint64_t kOverduePart = 8;

}  // namespace

bool KernelsRun(Markers* markers, uint32_t ordinal) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return false;
  bool runs = false;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal || !stream->is_timed) return;
    const uint32_t word = stream->word.load(std::memory_order_relaxed);
    runs |= stream->first != kNoMarker ? !markers->pool[stream->first].begins
                                       : (word & MarkedStream::kLaunches) != 0;
  });
  return runs;
}

uint64_t LaunchNs(Markers* markers, uint32_t ordinal) {
  uint64_t shortest_ns = 0;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    const uint64_t mean_ns = stream->mean_ns.load(std::memory_order_relaxed);
    if (stream->ordinal != ordinal || mean_ns == 0) return;
    shortest_ns = shortest_ns == 0 ? mean_ns : std::min(shortest_ns, mean_ns);
  });
  return shortest_ns;
}

uint64_t ExpectedNs(Markers* markers, uint64_t now_ns) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return UINT64_MAX;
  uint64_t soonest_ns = UINT64_MAX;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->first == kNoMarker) return;
    uint64_t left_ns = 0;  // what was not seen to begin may be over at any moment
    if (stream->is_timed && !markers->pool[stream->first].begins && now_ns > stream->run_begin_ns) {
      const uint64_t ran_ns = now_ns - stream->run_begin_ns;
      const uint64_t told_ns = markers->pool[stream->first].launches * stream->ns_per_launch;
      left_ns = told_ns > ran_ns ? told_ns - ran_ns : ran_ns / kOverduePart;
    }
    soonest_ns = std::min(soonest_ns, left_ns);
  });
  return soonest_ns;
}

uint64_t LeftNs(Markers* markers, uint32_t ordinal, uint64_t now_ns) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  uint64_t least_ns = UINT64_MAX;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    const bool begins = stream->first != kNoMarker && markers->pool[stream->first].begins;
    const bool known = stream->is_timed && stream->is_trusted && !begins;
    const uint64_t end_ns = known ? stream->run_begin_ns + stream->QueuedNs() : 0;
    least_ns = std::min(least_ns, end_ns > now_ns ? end_ns - now_ns : 0);
  });
  return least_ns != UINT64_MAX ? least_ns : 0;
}

uint64_t EndsNs(Markers* markers, uint32_t ordinal, uint64_t now_ns) {
  const StreamsGuard guard(&markers->streams);
  if (!guard) return 0;
  uint64_t latest_ns = 0;
  bool known = true;
  markers->streams.ForEachActive([&](MarkedStream* stream) {
    if (stream->ordinal != ordinal) return;
    const uint32_t launches =
        stream->word.load(std::memory_order_relaxed) & MarkedStream::kLaunches;
    const uint64_t end_ns =
        stream->run_begin_ns + (stream->queued + launches) * stream->ns_per_launch;
    // What takes longer than it should may take any time.
    known &= stream->is_timed && stream->is_trusted && stream->steady == kSteadyIntervals &&
             end_ns + kClockDoubtNs > now_ns &&
             (stream->first == kNoMarker || !markers->pool[stream->first].begins);
    latest_ns = std::max(latest_ns, end_ns);
  });
  return known ? latest_ns : 0;
}

}  // namespace gpufence
