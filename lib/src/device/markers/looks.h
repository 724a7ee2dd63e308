// Looks: which markers are over, and what their times tell of when streams ran kernels; and what
// runs now, and for how long it will. Must not know who looks or asks, how often, who pays, and
// which call ends a stream.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>

#include "device/markers/gaps.h"
#include "device/markers/markers.h"

namespace gpufence {

// The stream had work on the GPU since `since_ns`; of that, what lies before `begin_ns` stands for
// all pauses between kernels.
struct BusyInterval {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint32_t ordinal;
  uint64_t since_ns;
  bool is_own;          // none of it can be other containers'
  uint64_t between_ns;  // of those pauses: in them kernels of other streams may have run
  uint64_t idle_ns;     // ... and in them the GPU waited for the host, or was others'
};

// Where such intervals go.
class BusyList {
 public:
  BusyList(const BusyList&) = delete;
  BusyList& operator=(const BusyList&) = delete;

  BusyInterval* begin() { return at_; }
  BusyInterval* end() { return at_ + count_; }
  bool empty() const { return count_ == 0; }

  // Out of room the device's last interval takes it in: as a pause in front of both where it lies
  // behind, else with what lies between, which charges too much.
  void Add(uint32_t ordinal, uint64_t begin_ns, uint64_t end_ns) {
    Add({begin_ns, end_ns, ordinal, begin_ns, false, 0, 0});
  }
  void Add(const BusyInterval& more) {
    if (more.end_ns <= more.begin_ns) return;
    if (count_ < room_) {
      at_[count_++] = more;
    } else if (BusyInterval* last = LastOf(more.ordinal, count_); last != nullptr) {
      TakeIn(last, more);
    } else {
      *TakePlace() = more;
    }
  }

 protected:
  BusyList(BusyInterval* at, size_t room) : at_(at), room_(room) {}

 private:
  // Of those before `end`; null: none.
  BusyInterval* LastOf(uint32_t ordinal, size_t end) {
    for (size_t i = end; i > 0; --i) {
      if (at_[i - 1].ordinal == ordinal) return &at_[i - 1];
    }
    return nullptr;
  }

  static void TakeIn(BusyInterval* last, const BusyInterval& more) {
    if (more.since_ns < last->end_ns) return Cover(last, more);
    const uint64_t ran_ns = last->end_ns - last->begin_ns + more.end_ns - more.begin_ns;
    *last = {more.end_ns - ran_ns,
             more.end_ns,
             last->ordinal,
             last->since_ns,
             last->is_own && more.is_own,
             last->between_ns + more.between_ns,
             last->idle_ns + more.idle_ns};
  }

  static void Cover(BusyInterval* grown, const BusyInterval& other) {
    grown->begin_ns = std::min(grown->begin_ns, other.begin_ns);
    grown->end_ns = std::max(grown->end_ns, other.end_ns);
    grown->since_ns = std::min(grown->since_ns, other.since_ns);
    grown->is_own &= other.is_own;
    grown->between_ns = 0;
    grown->idle_ns = 0;
  }

  // The place of one that another one of its device covers. There is one: a list of several devices
  // has more places than there are devices.
  BusyInterval* TakePlace() {
    for (size_t i = count_ - 1; i > 0; --i) {
      BusyInterval* before = LastOf(at_[i].ordinal, i);
      if (before == nullptr) continue;
      Cover(before, at_[i]);
      return &at_[i];
    }
    return &at_[count_ - 1];
  }

  BusyInterval* at_;
  size_t room_;
  size_t count_ = 0;
};

template <size_t kRoom>
class BusyIntervals : public BusyList {
 public:
  BusyIntervals() : BusyList(intervals_, kRoom) {}

 private:
  BusyInterval intervals_[kRoom];
};

// What ran since the last look, by stream in order. `captures`: a capture may be open.
void CollectAll(Markers* markers, uint64_t now_ns, bool captures, BusyList* busy);

// The same of one stream of this thread's context, if all is marked and over; no capture is open.
void CollectEnded(Markers* markers, MarkedStream* stream, BusyList* busy);

// Samples that are in doubt, of which the others have told by now; returns how many.
size_t TakeDoubtful(Markers* markers, uint64_t now_ns, DoubtfulSample taken[kMostDoubtful]);

// Nobody came between in one of them.
void SettleSample(Markers* markers, const DoubtfulSample& sample);

// ---- what runs now, and for how long it will, by what runs took before ----

// Whether a kernel runs on the device, or did so when that was last seen; others may all be
// waiting.
bool KernelsRun(Markers* markers, uint32_t ordinal);

// Whether no stream that stands at the device's closed hold point, or will, has anything left in
// front of it that was not told.
bool AllStandAtHold(Markers* markers, uint32_t ordinal);

// What launches into the streams that run take, in the mean of some hundred: the shortest of these
// means; 0: not known.
uint64_t LaunchNs(Markers* markers, uint32_t ordinal);

// When the first stream that runs is expected to be done with its oldest marker; where that is
// over, a part of what it took so far.
uint64_t ExpectedNs(Markers* markers, uint64_t now_ns);

// How much longer the first stream of the device runs, by the mean of its launches, or by the
// latest ones where these are shorter: what launches took beside others before turns began is in
// the mean for long. 0: unknown.
uint64_t LeftNs(Markers* markers, uint32_t ordinal, uint64_t now_ns);

// When all that runs on the device is expected to be done; 0 when that cannot be said.
uint64_t EndsNs(Markers* markers, uint32_t ordinal, uint64_t now_ns);

// ---- streams and contexts that end ----

enum class Forgotten : uint8_t {
  kMarked,
  kUnmarked,  // what was launched cannot be marked: the caller waits for its end and charges that
  kHeldUp,    // a marker would have waited where the driver does not: charged up to now
};

// Before the driver destroys a stream: its markers stay, its handle is forgotten. What has no
// marker is charged from `*since_ns` on.
Forgotten ForgetStream(Markers* markers, CUstream handle, uint64_t* since_ns);

// Before the driver may end contexts: no driver call is made about them until the answer is known.
// A null handle: the primary one of the device. Returns which they are, a bit each: one that is new
// afterwards is none of them, whoever suspended it.
uint64_t SuspendContexts(Markers* markers, CUcontext handle, uint32_t ordinal);

// Afterwards. `ended`: all that was suspended is gone; what ran there ran until now.
void ResumeContexts(Markers* markers, uint64_t suspended, bool ended, uint64_t now_ns,
                    BusyList* busy);

// ---- for the parts of markers: the lock is held ----

// One look at streams.
struct StreamLook {
  uint64_t now_ns;
  bool captures;  // a capture may be open
  BusyList* busy;
  int64_t gpu_ns = 0;  // when the last marker was reached by the GPU's clock; 0: unknown
  bool alone = false;  // one stream is active
};

// A call about the stream failed; true when it is one too many.
bool Fails(MarkedStream* stream);

// Whether the marker was reached. One that cannot be asked any more blinds its context.
bool IsOver(Markers* markers, MarkedStream* stream, const Marker& marker);

// How many of its markers are over, oldest first; few are asked, since each costs the watcher.
size_t CountOver(Markers* markers, MarkedStream* stream);

// Takes its oldest markers, of which so many are over.
void TakeOver(Markers* markers, MarkedStream* stream, size_t over, StreamLook* look);

// It ran until `end_ns`, and so many launches have done so since the last marker.
void TellRunning(const Markers& markers, MarkedStream* stream, const IntervalContent& content,
                 uint64_t end_ns, const StreamLook& look);

// A look at one stream. The thread is in its context.
void CollectStream(Markers* markers, MarkedStream* stream, StreamLook* look);

// What was closed and not told yet (closed_runs, runs.h).
void TellClosed(MarkedStream* stream, BusyList* busy);

}  // namespace gpufence
