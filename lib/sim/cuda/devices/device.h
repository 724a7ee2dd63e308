// Devices as the CUDA API numbers them: the machine's devices after CUDA_VISIBLE_DEVICES.
//
// Owns the mapping logical to physical.  Must not know contexts or memory.
#pragma once

#include "driver_abi.h"

namespace sim::device {

// Reads CUDA_VISIBLE_DEVICES once, at cuInit.  Returns the number of visible devices.
int Enumerate();

int VisibleCount();

// Whether a CUdevice names a visible device; everything else here requires it.
bool IsValid(CUdevice device);

// The machine's index of a visible device.
int Physical(CUdevice device);

// The logical device of a machine index, or -1 when it is not visible.
int Logical(int physical);

int SmCount(CUdevice device);

// Who pays for memory at a location: a visible device, or -1 for host memory of any kind.
CUresult ResolveLocation(const CUmemLocation& location, int* device);

// The same for memory that is to be allocated: since CUDA 13.4 also in a part of a device, of which
// each has two.
CUresult ResolveAllocation(const CUmemLocation& location, int* device);

// The part of its device that a location names; -1: the whole.
int DomainOf(const CUmemLocation& location);

}  // namespace sim::device
