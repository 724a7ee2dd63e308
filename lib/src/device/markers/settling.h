// Short runs that are over when the next one begins, as of a program that waits for an event behind
// each few kernels. Two markers for each would cost the program as much as a launch, and reading
// them the watcher more than all else. Whoever begins the next run asks anyway whether the last
// marker is over: then it settles what was before, and the watcher has nothing to read. Of runs
// that the host saw take about as long as the others one in eight, drawn at random, has a marker at
// its begin and is read, and the next ones are charged as much: however a program mixes its runs,
// in the mean all of them are paid for as they are.
// For the parts of markers alone; the lock is held.
#pragma once

#include <stdint.h>

#include "device/markers/busy.h"
#include "device/markers/markers.h"

namespace gpufence {

// Whether the run that begins needs no marker for that. Beside other streams all are read.
bool MayGoUnread(const Markers& markers, const MarkedStream& stream);

// All markers of the stream, if it has any, are over, and the next run begins. The last one began
// at `last_begin_ns` by the host's clock.
void SettleLast(Markers* markers, MarkedStream* stream, uint64_t last_begin_ns);

// What was settled and not told yet.
void TellSettled(MarkedStream* stream, BusyList* busy);

}  // namespace gpufence
