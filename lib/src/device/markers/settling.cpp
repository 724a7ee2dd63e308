#include "device/markers/settling.h"

#include <algorithm>

#include "device/capture_mode.h"
#include "device/markers/reading.h"

namespace gpufence {
namespace {

constexpr uint32_t kUnreadEach = 7;  // for each that is read, in the mean
// By so much the time from a run's begin to the next one's may be off the mean of the last eight or
// so; most of that is how long it takes to wake up who waited.
constexpr uint64_t kMostOffNs = 40'000;
constexpr uint64_t kMeanRuns = 8;
constexpr size_t kMostSettled = 4;  // intervals; further ones join the last

// Whether the host saw it take about as long as the others; learns from it.
bool IsUsual(SettledRuns* runs, uint64_t span_ns) {
  const uint64_t mean_ns = runs->run_span_ns != 0 ? runs->run_span_ns : span_ns;
  const uint64_t learnt_ns = std::min(span_ns, 2 * mean_ns);  // a launch of the next may be held
  runs->run_span_ns = ((kMeanRuns - 1) * mean_ns + learnt_ns) / kMeanRuns;
  return span_ns < mean_ns + kMostOffNs && mean_ns < span_ns + kMostOffNs;
}

// Whether all of the run is between its begin by the host's clock and the one marker that is left,
// and nothing of it was told.
bool IsWhollyUnread(const Markers& markers, const MarkedStream& stream) {
  return stream.settling.is_unread && stream.settling.unread != 0 && stream.first == stream.last &&
         !markers.pool[stream.first].begins && stream.is_timed &&
         stream.charged_ns == stream.run_begin_ns;
}

// What the samples took stands for it.
void SettleUnread(Markers* markers, MarkedStream* stream, uint64_t span_ns) {
  SettledRuns* runs = &stream->settling;
  --runs->unread;
  runs->settled_ns += std::min(runs->sample_ns, span_ns);
  runs->settled_until_ns = stream->waited.host_begin_ns;
  stream->queued -= markers->pool[stream->first].launches;
  stream->others_over = markers->pool[stream->first].others;
  markers->CountReached(*stream);
  markers->pool.Return(stream->first);
  stream->first = stream->last = kNoMarker;
}

}  // namespace

bool MayGoUnread(const Markers& markers, const MarkedStream& stream) {
  return stream.settling.unread != 0 && markers.streams.IsOnlyActive(&stream);
}

void SettleLast(Markers* markers, MarkedStream* stream, uint64_t last_begin_ns) {
  // The last run alone may have been a long one.
  const uint64_t launch_ns = std::min<uint64_t>(stream->ns_per_launch, stream->mean_ns);
  if (stream->first == kNoMarker || launch_ns >= kBriefLaunchNs || !stream->is_trusted ||
      !markers->streams.IsOnlyActive(stream) || !markers->streams.IsHere(*stream)) {
    return;
  }
  SettledRuns* runs = &stream->settling;
  const uint64_t span_ns = stream->waited.host_begin_ns - last_begin_ns;
  const bool is_usual = IsUsual(runs, span_ns);
  if (is_usual && IsWhollyUnread(*markers, *stream)) return SettleUnread(markers, stream, span_ns);
  const Marker& first = markers->pool[stream->first];
  runs->is_sample = is_usual && first.begins && first.next == stream->last;
  if (runs->is_sample) runs->unread = stream->Random() % (2 * kUnreadEach + 1);
  size_t over = 0;
  for (uint16_t i = stream->first; i != kNoMarker; i = markers->pool[i].next) ++over;
  BusyIntervals<kMostSettled> busy;
  StreamLook look = {NowNs(), /*captures=*/false, &busy};
  look.alone = true;
  const CaptureRelaxed relaxed;  // another thread's capture may begin at any moment
  TakeOver(markers, stream, over, &look);
  for (const BusyInterval& ran : busy) {
    runs->settled_ns += ran.end_ns - ran.begin_ns;
    runs->settled_until_ns = ran.end_ns;
  }
}

// As one interval: they lie behind all that was told before, and took no longer than since then.
void TellSettled(MarkedStream* stream, BusyList* busy) {
  SettledRuns* runs = &stream->settling;
  busy->Add(stream->ordinal, runs->settled_until_ns - runs->settled_ns, runs->settled_until_ns);
  runs->settled_ns = 0;
}

}  // namespace gpufence
