// The name of this container: which processes share a region. Must not know CUDA or limits.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

inline constexpr size_t kContainerNameBytes = 129;

// `given`, reduced to [A-Za-z0-9._-] (other characters become '_'; long names end in a hash), or,
// when it is empty, a name made of pid namespace and root file system: the same for every process
// of a container, another one for its neighbours even where they share /dev/shm.
void NameContainer(const char* given, char name[kContainerNameBytes]);

// Which clock this process's monotonic one is: it starts anew with the machine, and a container may
// have one of its own. Moments of different clocks must not be compared.
uint64_t ClockIdentity();

// FNV-1a, 64 bits: for keys, not for secrets.
uint64_t HashText(const char* text);

}  // namespace gpufence
