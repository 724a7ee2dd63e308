// Memory that starts over in a forked child. Everything a process knows about itself (its slot, its
// allocations) is wrong in a child, which owns nothing; such state lives here and reads as zero
// there. Covers fork and raw clone; a vfork or posix_spawn child shares its parent's memory and
// only execs.
#pragma once

#include <stddef.h>

namespace gpufence {

// Zeroed pages, zero again in every forked child. Null when the system gives no memory.
// Costs a system call: for what is made once, or grows by doubling.
void* MapWipedOnFork(size_t bytes);

// Gives back what MapWipedOnFork returned.
void UnmapWipedOnFork(void* address, size_t bytes);

}  // namespace gpufence
