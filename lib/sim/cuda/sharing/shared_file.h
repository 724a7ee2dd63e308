// Memory files that other processes may map: how one is made, recognised and reached.
//
// Must not know handles or addresses.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim::shared_file {

// Opens another process's descriptor; -1 when that process or descriptor is gone, or when what is
// open there is not the file with the given inode number.
int OpenForeign(int pid, int fd, uint64_t inode);

uint64_t InodeOf(int fd);

}  // namespace sim::shared_file
