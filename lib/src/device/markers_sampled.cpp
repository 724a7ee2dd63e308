// Short runs that are over when the next one begins, as of a program that waits for an event behind
// each few kernels. Two markers for each would cost the program as much as a launch, and reading
// them the watcher more than all else. Whoever begins the next run asks anyway whether the last
// marker is over: then it settles what was before, and the watcher has nothing to read. Of runs
// that the host saw take about as long as the others one in eight, drawn at random, has a marker at
// its begin and is read, and the next ones are charged as much: however a program mixes its runs,
// in the mean all of them are paid for as they are.
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
constexpr size_t kMostSettled = 4;  // intervals; further ones join the last

// Whether the host saw it take about as long as the others; learns from it.
bool IsUsual(MarkedStream* stream, uint64_t span_ns) {
  const uint64_t mean_ns = stream->run_span_ns != 0 ? stream->run_span_ns : span_ns;
  const uint64_t learnt_ns = std::min(span_ns, 2 * mean_ns);  // a launch of the next may be held
  stream->run_span_ns = ((kMeanRuns - 1) * mean_ns + learnt_ns) / kMeanRuns;
  return span_ns < mean_ns + kMostOffNs && mean_ns < span_ns + kMostOffNs;
}

}  // namespace

// Whether the run that begins needs no marker for that. Beside other streams all are read.
bool Markers::MayGoUnread(const MarkedStream& stream) const {
  return stream.unread != 0 && IsOnlyActive(&stream);
}

// Whether all of the run is between its begin by the host's clock and the one marker that is left,
// and nothing of it was told.
bool Markers::IsWhollyUnread(const MarkedStream& stream) const {
  return stream.is_unread && stream.unread != 0 && stream.first == stream.last &&
         !markers_[stream.first].begins && stream.is_timed &&
         stream.charged_ns == stream.run_begin_ns;
}

// All markers of the stream, if it has any, are over, and the next run begins. The last one began
// at `last_begin_ns` by the host's clock.
void Markers::Settle(MarkedStream* stream, uint64_t last_begin_ns) {
  // The last run alone may have been a long one.
  const uint64_t launch_ns = std::min<uint64_t>(stream->ns_per_launch, stream->mean_ns);
  if (stream->first == kNone || launch_ns >= kHostToldLaunchNs || !stream->is_trusted ||
      !IsOnlyActive(stream) || !IsHere(*stream)) {
    return;
  }
  const uint64_t now_ns = stream->host_begin_ns;
  const uint64_t span_ns = now_ns - last_begin_ns;
  const bool is_usual = IsUsual(stream, span_ns);
  if (is_usual && IsWhollyUnread(*stream)) {
    --stream->unread;
    stream->settled_ns += std::min(stream->sample_ns, span_ns);
    stream->settled_until_ns = now_ns;
    stream->queued -= markers_[stream->first].launches;
    CountReached(*stream);
    Return(stream->first);
    stream->first = stream->last = kNone;
    return;
  }
  const Marker& first = markers_[stream->first];
  stream->is_sample = is_usual && first.begins && first.next == stream->last;
  if (stream->is_sample) stream->unread = Random(stream) % (2 * kUnreadEach + 1);
  size_t over = 0;
  for (uint16_t i = stream->first; i != kNone; i = markers_[i].next) ++over;
  BusyInterval busy[kMostSettled];
  Look look = {NowNs(), false, busy, kMostSettled, 0, stream->context};
  look.alone = true;
  TakeOver(stream, over, &look);
  for (size_t i = 0; i < look.count; ++i) {
    stream->settled_ns += busy[i].end_ns - busy[i].begin_ns;
    stream->settled_until_ns = busy[i].end_ns;
  }
}

// As one interval: they lie behind all that was told before, and took no longer than since then.
void Markers::TellSettled(MarkedStream* stream, Look* look) {
  look->Add(*stream, stream->settled_until_ns - stream->settled_ns, stream->settled_until_ns);
  stream->settled_ns = 0;
}

}  // namespace gpufence
