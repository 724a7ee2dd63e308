// The name of this container: which processes share a region. Must not know CUDA or limits.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

inline constexpr size_t kContainerNameBytes = 129;

// What tells one life of a container from every other. The kernel gives numbers of namespaces and
// file systems out again as soon as they are free, so there are times and counters among these.
// Whatever cannot be found out is 0 for every process of the container, whatever its user.
struct Lifetime {
  uint64_t boot;  // of the machine
  uint64_t pid_namespace;
  uint64_t namespace_id;  // never given out twice before the next boot; Linux 6.18
  uint64_t first_start;   // of process 1, in ticks since the boot
  uint64_t root_device;
  uint64_t root_inode;
  uint64_t root_born_ns;
  uint64_t devices_born_ns;  // of /dev, which an engine makes anew each time
  uint64_t cgroups;          // what is mounted at /sys/fs/cgroup and below
};

Lifetime OwnLifetime();

// The name of a container that nobody named. tools/gpufence/container/lifetimes.py reads it.
void NameLifetime(const Lifetime& lifetime, char name[kContainerNameBytes]);

// `given`, reduced to [A-Za-z0-9._-] (other characters become '_'; long names end in a hash), or,
// when it is empty, the name of this process's lifetime: the same for every process of a container,
// another one for its neighbours and for the next container in its place.
void NameContainer(const char* given, char name[kContainerNameBytes]);

// Which clock this process's monotonic one is: it starts anew with the machine, and a container may
// have one of its own. Moments of different clocks must not be compared.
uint64_t ClockIdentity();

// FNV-1a, 64 bits: for keys, not for secrets.
uint64_t HashText(const char* text);

}  // namespace gpufence
