// Short runs that are over when they are looked at, each between two markers: reading the times of
// all of them costs the watcher more than all else. Of those that the host saw take about as long
// as the others one in eight is read, drawn at random, and the next ones are charged as much:
// however a program mixes its runs, in the mean all of them are paid for as they are.
#include <algorithm>

#include "device/markers_gaps.h"
#include "device/markers_look.h"

namespace gpufence {
namespace {

constexpr uint32_t kUnreadEach = 7;  // for each that is read, in the mean
// By so much the time from a run's begin to the next one's may be off the mean of the last eight or
// so; most of that is how long it takes to wake up who waited.
constexpr uint64_t kMostOffNs = 40'000;
constexpr uint64_t kMeanRuns = 8;

// Whether the host saw it take about as long as the others; learns from it.
bool IsUsual(MarkedStream* stream, uint64_t span_ns) {
  const uint64_t mean_ns = stream->run_span_ns != 0 ? stream->run_span_ns : span_ns;
  const uint64_t learnt_ns = std::min(span_ns, 2 * mean_ns);  // a launch of the next may be held
  stream->run_span_ns = ((kMeanRuns - 1) * mean_ns + learnt_ns) / kMeanRuns;
  return span_ns < mean_ns + kMostOffNs && mean_ns < span_ns + kMostOffNs;
}

}  // namespace

// The run that the first three markers enclose, all of which are over. False: it must be read.
bool Markers::TakeUnread(MarkedStream* stream, Look* look) {
  const uint16_t first = stream->first;
  const Marker& begin = markers_[first];
  const Marker& end = markers_[begin.next];
  const Marker& next = markers_[end.next];
  // Where nothing was before the next run on the GPU, this one ended before that was begun.
  const bool is_enclosed =
      begin.begins && begin.prompt && !end.begins && next.begins && next.prompt;
  if (!is_enclosed || !stream->is_trusted || stream->ns_per_launch >= kHostToldLaunchNs) {
    return false;
  }
  const uint64_t span_ns = next.recorded_ns - begin.recorded_ns;
  if (!IsUsual(stream, span_ns)) return false;
  stream->is_sample = stream->unread == 0;
  if (stream->is_sample) {
    stream->unread = Random(stream) % (2 * kUnreadEach + 1);
    return false;
  }
  --stream->unread;
  const uint64_t busy_ns = std::min(stream->sample_ns, span_ns);
  look->Add(*stream, next.recorded_ns - busy_ns, next.recorded_ns);
  stream->queued -= end.launches;
  stream->first = end.next;
  CountReached(*stream);
  Return(begin.next);
  Return(first);
  return true;
}

}  // namespace gpufence
