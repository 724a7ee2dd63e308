// Runs: when a stream begins to run kernels, how that begin is told, and how the end of a run is
// known that the program waits for. Must not know why a launch was held, nor which call waits.
//
// Short runs that the program waits for, one by one: two markers would cost such a run a tenth of
// its time, and the watcher more than the run. The host's clock sees when the launch returned,
// which is when the GPU has it, and when the wait was over; what lies around the kernels in between
// is learned from runs that are marked all the same, one for each millisecond. These also tell
// whether a long run had long kernels or a late host. If kernels, the next runs are marked; and a
// long run that is under way at a tick of the watcher gets its marker there.
//
// Short runs that are over when the next one begins, as of a program that waits for an event behind
// each few kernels. Two markers for each would cost the program as much as a launch, and reading
// them the watcher more than all else. Whoever begins the next run asks anyway whether the last
// marker is over: then it closes what was before, and the watcher has nothing to read. Of runs
// that the host saw take about as long as the others one in eight, drawn at random, has a marker at
// its begin and is read, and the next ones are charged as much: however a program mixes its runs,
// in the mean all of them are paid for as they are.
#pragma once

#include <stdint.h>

#include "device/markers/looks.h"
#include "device/markers/markers.h"

namespace gpufence {

// How long a launch was kept waiting before it went, and how much of that for other containers.
struct HeldNs {
  uint64_t at_all;
  uint64_t by_others;
  uint64_t unasked_ns;  // then the gate was open for a stream that is looked at; 0: it was asked
  bool on_gpu;          // it waits there as well, behind a hold point
};

// kOtherStream: it is none of the handle any more. kMustAsk: nobody asked, and the stream is not
// looked at any more.
enum class Begun : uint8_t { kYes, kNotMarked, kOtherStream, kMustAsk };

// Before a launch into a stream that is not running, and that was held for so long: that says
// nothing about what it does, and after others the GPU comes from another process. Also behind a
// launch, when the stream was seen idle meanwhile. `captures`: a capture may be open. So many
// launches are `uncounted`.
Begun BeginRun(Markers* markers, MarkedStream* stream, CUstream handle, HeldNs held, bool captures,
               uint32_t uncounted = 0);

// Whether the stream, which is running, has nothing to do when a launch comes: then that begins a
// new run, or the pause would be charged. Where launches come close together it is not asked.
bool CameToIdle(Markers* markers, MarkedStream* stream, CUstream handle, bool captures);

// ---- runs that are waited for ----

// Before a wait for a stream's end: leaves the stream, unless the host's clock is enough; then the
// launches that are waited for are returned.
uint32_t BeforeWait(Markers* markers, MarkedStream* stream);

// After it, now, with what was returned and whether the stream has ended: what ran there since the
// last look. Nothing where the place is another handle's meanwhile.
void AfterWait(Markers* markers, MarkedStream* stream, CUstream handle, uint32_t launches,
               bool ended, uint64_t now_ns, BusyList* busy);

// After the driver was asked whether the stream has ended, as AfterWait. Nothing is put into one
// that has: asked again it would not be ready.
void AfterAnswer(Markers* markers, MarkedStream* stream, bool ended, BusyList* busy);

// ---- for the parts of markers: the lock is held ----

// Whether the host's clock tells of the run that begins, by the wait for it. Beside other streams
// it would see their kernels as well.
bool HostIsEnough(const Markers& markers, const MarkedStream& stream);

// Whether it would, but for what has to be learned from a run that is marked.
bool IsSampleOfWaits(const Markers& markers, const MarkedStream& stream);

}  // namespace gpufence
