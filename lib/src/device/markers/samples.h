// What a launch takes the GPU where other containers use it as well: an interval of many launches
// then holds their time too, in unknown parts. A sample is one launch between two markers that are
// put right around it: the GPU comes to all three at once, or others come between, which takes so
// long that it shows (docs/side-by-side.md). What was queued as a whole may take as long by itself:
// others come between only at the end of a slice. Of use where the host launches slower than the
// GPU works; for the parts of markers alone; must not know the driver.
#pragma once

#include <stdint.h>

#include "device/markers/marked_stream.h"
#include "device/markers/markers.h"

namespace gpufence {

// Whether the next launch is to be one; behind a marker for so many launches, for which the host
// took `host_ns`.
bool IsSampleDue(const Markers& markers, MarkedStream* stream, uint32_t launches, uint64_t host_ns,
                 uint64_t now_ns);

// A sample: `ran_ns` from one marker to the other, of which the launch itself took the host
// `lead_ns` while the GPU waited for it; 0: all three were queued when the GPU came to them.
void LearnSample(const GpuPauses& pauses, MarkedStream* stream, uint64_t ran_ns, uint64_t lead_ns,
                 uint64_t now_ns);

// So long such launches take the GPU; UINT64_MAX: not known, or the host is no slower.
uint64_t SampledNs(const MarkedStream& stream, uint64_t launches, uint64_t now_ns);

}  // namespace gpufence
