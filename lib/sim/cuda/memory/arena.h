// Where device addresses come from, and the host memory that stands behind them.
//
// Owns one memory file per process, mapped once: offset in the file and device address differ by a
// constant, pages exist only where they were written, and another process can map a part of it.
// Must not know what an address is used for, nor what it costs.  DriverLock held throughout.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim::arena {

// Makes the memory file if there is none yet; Take does so by itself.  False when it cannot.
bool Open();

// Takes `bytes` (a multiple of the granule) of zeroed memory.  False when addresses are exhausted.
bool Take(size_t bytes, uint64_t* offset);

// Gives it back; its pages go back to the host at once.
void Give(uint64_t offset, size_t bytes);

// Zeroes memory that stays taken; its pages go back to the host.
void Clear(uint64_t offset, size_t bytes);

// A mark is a number in the memory file that other processes can see: an exporter makes one and
// clears it when what it stands for ends.  A mark is known by its place and its value; place 0 = no
// place was left.
uint32_t MakeMark();
uint64_t MarkAt(uint32_t place);
void ClearMark(uint32_t place);

// Whether a mark still stands in a memory file.
bool IsMarked(int fd, uint32_t place, uint64_t value);

uintptr_t AddressOf(uint64_t offset);

// Whether an address lies in the arena, used or not.
bool Contains(uintptr_t address);

// The memory file's descriptor, for mapping a part of it elsewhere; -1 before Open.
int Descriptor();

// Maps a part of a memory file at `address` (0 = wherever there is room on a granule).  Returns the
// address, or 0.
uintptr_t MapFile(uintptr_t address, size_t bytes, int fd, uint64_t offset);

// The same below 4 GiB, for callers whose addresses have 32 bits.
uintptr_t MapFileLow(size_t bytes, int fd, uint64_t offset);

// Reserves addresses without memory, aligned as asked (a power of two, at least the granule);
// `wish` is tried first unless 0.  Returns the address, or 0.
uintptr_t ReserveAddresses(size_t bytes, size_t alignment, uintptr_t wish);

// Turns mapped memory back into reserved addresses.
void MakeBlank(uintptr_t address, size_t bytes);

void Unmap(uintptr_t address, size_t bytes);

}  // namespace sim::arena
