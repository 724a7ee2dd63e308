// Memory for the fills in front of markers (device/markers/marking.h). Must not know when a marker
// wants one.
#pragma once

#include "hooks/cores/cores.h"

namespace gpufence {

// Before a launch: gets it for the stream's context, as the program would, so that it is charged
// and ends with the context. Holds no lock.
[[gnu::cold, gnu::noinline]] void FindFilled(Cores* cores, const MarkedStream& stream);

}  // namespace gpufence
