// Memory that several processes share: files that others may map, pieces of another process's arena
// in this one's addresses, and what lies behind dma-bufs, which stays on the device until the last
// of them is closed. Must not know how memory comes to lie where it does. DriverLock held.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/memory/memory.h"

namespace sim::shared_file {

// Opens another process's descriptor; -1 when that process or descriptor is gone, or when what is
// open there is not the file with the given inode number.
int OpenForeign(int pid, int fd, uint64_t inode);

uint64_t InodeOf(int fd);

}  // namespace sim::shared_file

namespace sim::import {

// A piece of another process's arena.
struct Piece {
  int fd;  // of the arena; not taken over
  uint64_t offset;
  uint64_t bytes;
  int physical_device;
};

// Maps a piece and puts it on the address map.  Costs no device memory: the exporter pays.
CUresult Map(const Piece& piece, uint64_t context, uint64_t pool, CUdeviceptr* address);

}  // namespace sim::import

namespace sim::dma_buf {

// The memory at an offset of the arena is about to be given back to the device.
void Leave(uint64_t offset);

// Whether it is behind a dma-buf, or was.
bool IsPinned(uint64_t offset);

}  // namespace sim::dma_buf
