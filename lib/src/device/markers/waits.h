// Short runs that the program waits for, one by one: two markers would cost such a run a tenth of
// its time, and the watcher more than the run. The host's clock sees when the launch returned,
// which is when the GPU has it, and when the wait was over; what lies around the kernels in between
// is learned from runs that are marked all the same, one for each millisecond. What the host sees
// too long is marked from then on, and a run that is under way at a tick of the watcher gets its
// marker there. Must not know which call waits.
#pragma once

#include <stdint.h>

#include "device/markers/busy.h"
#include "device/markers/markers.h"

namespace gpufence {

// Shorter launches are told by the host's clock alone, where the program waits for them.
inline constexpr uint64_t kHostToldLaunchNs = 400'000;

// Before a wait for a stream's end: leaves the stream, unless the host's clock is enough; then the
// launches that are waited for are returned.
uint32_t BeforeWait(Markers* markers, MarkedStream* stream);

// After it, with what was returned and whether the stream has ended: what ran there since the last
// look. Nothing where the place is another handle's meanwhile.
void AfterWait(Markers* markers, MarkedStream* stream, CUstream handle, uint32_t launches,
               bool ended, BusyList* busy);

// After the driver was asked whether the stream has ended, as AfterWait. Nothing is put into one
// that has: asked again it would not be ready.
void AfterAnswer(Markers* markers, MarkedStream* stream, bool ended, BusyList* busy);

// ---- for the parts of markers: the lock is held ----

// Whether the host's clock tells of the run that begins, by the wait for it. Beside other streams
// it would see their kernels as well.
bool HostIsEnough(const Markers& markers, const MarkedStream& stream);

// Whether it would, but for what has to be learned from a run that is marked.
bool IsSampleOfWaits(const Markers& markers, const MarkedStream& stream);

// Whether the wait for a run that no marker begins may yet tell of it, as it does of others.
bool IsToldByHost(const MarkedStream& stream, uint32_t launches, uint64_t now_ns);

}  // namespace gpufence
