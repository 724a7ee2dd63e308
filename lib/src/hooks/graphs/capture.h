// Whether a stream may be capturing at all: most processes never begin a capture, and then no call
// on a stream asks the driver for its state.
#pragma once

#include <stdint.h>

#include <atomic>

namespace gpufence {

// Captures that are open. Counted before the driver is asked to begin one, and taken off after it
// has ended it: too high when one ended unseen, with its stream, and in a forked child.
extern constinit std::atomic<uint32_t> open_captures;

inline bool MayCapture() { return open_captures.load(std::memory_order_acquire) != 0; }

}  // namespace gpufence
