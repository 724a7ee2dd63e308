// Device memory that a descriptor keeps alive: the driver gives an exported memory an open file of
// its device node, and the memory lives until the last duplicate of that file is closed, in
// whatever process, its makers dead or not. So that anybody can tell, the open file gets a lock
// (F_OFD_SETLK), which the kernel drops at that very moment; the lock's place says which memory,
// its length how much. Nothing is kept open for it. Must not know CUDA.
//
// A lock on the node is seen through any other open file of it. A dma-buf is a file of its own that
// cannot be opened a second time: a lock on one is looked up in the kernel's list.
//
// While a process of the container is charged for the memory, that process holds a second lock on
// the same place of the region's file: one that ends with the process and is not inherited
// (F_SETLK). What is locked in the node and not there is held by descriptors alone.
#pragma once

#include <stdint.h>

#include "state/slots.h"

namespace gpufence {

// Locks the open file behind an exported descriptor, of the node or not, for `bytes` of a row's
// memory. `*place`: 0 for memory that was not exported before; kept for further descriptors of the
// same memory, which may have grown meanwhile. False: no such lock is to be had.
bool LockExported(const RegionFile& file, uint32_t row, int fd, uint64_t bytes, uint64_t* place);

// The memory's charge is about to go; what is held from here on is held by descriptors.
void EndCharged(const RegionFile& file, uint64_t place);

// Whether a descriptor of this memory is open anywhere. True also where that cannot be known.
bool IsHeldByDescriptor(uint64_t place);

// What descriptors alone hold of a row. False: it cannot be known now.
bool HeldByDescriptors(const RegionFile& file, uint32_t row, uint64_t* bytes);

}  // namespace gpufence
