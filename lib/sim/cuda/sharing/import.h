// Bringing another process's memory into this one's addresses.  DriverLock held.
#pragma once

#include "cuda/memory/memory.h"

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
