// See arena.h.
#include "cuda/memory/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine/machine.h"
#include "machine/vec.h"

namespace sim::arena {
namespace {

using machine::kGranuleBytes;

// Far more than any device has, so that freed addresses need not be reused soon; smaller where the
// process may not have that many.
constexpr size_t kWindowBytes[] = {size_t{1} << 44, size_t{1} << 42, size_t{1} << 40,
                                   size_t{1} << 38};

// So that what is aligned in the file is aligned in memory, up to a pool's blocks.
constexpr size_t kBaseAlignment = size_t{32} << 20;

struct Extent {
  uint64_t offset;
  uint64_t bytes;
};

constinit int g_fd = -1;
constinit uintptr_t g_base = 0;
constinit size_t g_window_bytes = 0;
constinit uint64_t g_untouched = 0;  // everything from this offset on was never taken
constinit uint64_t g_next_mark = 1;
constinit Vec<Extent> g_free = {};  // by offset, no two adjacent

// Maps `bytes` on a granule: asks for one granule more and cuts the rest off.
void* MapAligned(size_t bytes, size_t alignment, int protection, int flags, int fd,
                 uint64_t offset) {
  void* room = mmap(nullptr, bytes + alignment, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const uintptr_t start = reinterpret_cast<uintptr_t>(room);
  const uintptr_t aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) munmap(room, aligned - start);
  const size_t behind = start + alignment - aligned;
  if (behind > 0) munmap(reinterpret_cast<void*>(aligned + bytes), behind);
  void* wanted = reinterpret_cast<void*>(aligned);
  void* map = mmap(wanted, bytes, protection, flags | MAP_FIXED, fd, static_cast<off_t>(offset));
  if (map != MAP_FAILED) return map;
  munmap(wanted, bytes);
  return nullptr;
}

bool Prepare() {
  if (g_base != 0) return true;
  if (g_fd < 0) {  // by its number: glibc before 2.27 has no function for it
    g_fd = static_cast<int>(syscall(SYS_memfd_create, "gpufence-sim-device-memory", MFD_CLOEXEC));
  }
  if (g_fd < 0) return false;
  for (const size_t bytes : kWindowBytes) {
    if (ftruncate(g_fd, static_cast<off_t>(bytes)) != 0) continue;
    void* map = MapAligned(bytes, kBaseAlignment, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE, g_fd, 0);
    if (map == nullptr) continue;
    madvise(map, bytes, MADV_DONTDUMP);
    g_base = reinterpret_cast<uintptr_t>(map);
    g_window_bytes = bytes;
    g_untouched = kGranuleBytes;  // the first granule holds the marks
    return true;
  }
  return false;
}

uint64_t* Marks() { return reinterpret_cast<uint64_t*>(g_base); }

// Index of the first free extent behind an offset.
size_t FirstBehind(uint64_t offset) {
  size_t low = 0;
  size_t high = g_free.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (g_free[middle].offset > offset) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

bool TakeFreed(size_t bytes, uint64_t* offset) {
  for (size_t index = 0; index < g_free.size(); ++index) {
    Extent& extent = g_free[index];
    if (extent.bytes < bytes) continue;
    *offset = extent.offset;
    extent.offset += bytes;
    extent.bytes -= bytes;
    if (extent.bytes == 0) g_free.Erase(index);
    return true;
  }
  return false;
}

}  // namespace

bool Open() { return Prepare(); }

bool Take(size_t bytes, uint64_t* offset) {
  if (!Prepare()) return false;
  if (TakeFreed(bytes, offset)) return true;
  if (bytes > g_window_bytes - g_untouched) return false;
  *offset = g_untouched;
  g_untouched += bytes;
  return true;
}

void Clear(uint64_t offset, size_t bytes) {
  fallocate(g_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

void Give(uint64_t offset, size_t bytes) {
  Clear(offset, bytes);
  const size_t at = FirstBehind(offset);
  const bool joins_left = at > 0 && g_free[at - 1].offset + g_free[at - 1].bytes == offset;
  const bool joins_right = at < g_free.size() && offset + bytes == g_free[at].offset;
  if (joins_left) {
    g_free[at - 1].bytes += bytes + (joins_right ? g_free[at].bytes : 0);
    if (joins_right) g_free.Erase(at);
  } else if (joins_right) {
    g_free[at].offset = offset;
    g_free[at].bytes += bytes;
  } else {
    g_free.Insert(at, {offset, bytes});  // on failure these addresses are never reused: harmless
  }
}

uint32_t MakeMark() {
  constexpr uint32_t kPlaces = kGranuleBytes / sizeof(uint64_t);
  for (uint32_t place = 1; place < kPlaces; ++place) {
    if (Marks()[place] != 0) continue;
    Marks()[place] = g_next_mark++;
    return place;
  }
  return 0;
}

uint64_t MarkAt(uint32_t place) { return Marks()[place]; }

void ClearMark(uint32_t place) { Marks()[place] = 0; }

bool IsMarked(int fd, uint32_t place, uint64_t value) {
  uint64_t found = 0;
  const auto at = static_cast<off_t>(place * sizeof(found));
  return pread(fd, &found, sizeof(found), at) == sizeof(found) && found == value;
}

uintptr_t AddressOf(uint64_t offset) { return g_base + offset; }

bool Contains(uintptr_t address) {
  return g_base != 0 && address >= g_base && address - g_base < g_window_bytes;
}

int Descriptor() { return g_fd; }

uintptr_t MapFile(uintptr_t address, size_t bytes, int fd, uint64_t offset) {
  if (address == 0) {
    return reinterpret_cast<uintptr_t>(MapAligned(bytes, kGranuleBytes, PROT_READ | PROT_WRITE,
                                                  MAP_SHARED | MAP_NORESERVE, fd, offset));
  }
  void* map = mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, static_cast<off_t>(offset));
  return map != MAP_FAILED ? address : 0;
}

uintptr_t MapFileLow(size_t bytes, int fd, uint64_t offset) {
  constexpr uintptr_t kFrom = uintptr_t{1} << 28;
  constexpr uintptr_t kTo = uintptr_t{1} << 32;
  for (uintptr_t at = kFrom; at + bytes <= kTo; at += kGranuleBytes) {
    void* map =
        mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, static_cast<off_t>(offset));
    if (map == reinterpret_cast<void*>(at)) return at;
    if (map != MAP_FAILED) munmap(map, bytes);  // a kernel before 4.17 takes it for a hint
  }
  return 0;
}

uintptr_t ReserveAddresses(size_t bytes, size_t alignment, uintptr_t wish) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (wish != 0) {
    void* at = reinterpret_cast<void*>(wish);
    void* map = mmap(at, bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (map == at) return wish;
    if (map != MAP_FAILED) munmap(map, bytes);
  }
  return reinterpret_cast<uintptr_t>(MapAligned(bytes, alignment, PROT_NONE, kFlags, -1, 0));
}

void MakeBlank(uintptr_t address, size_t bytes) {
  mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void Unmap(uintptr_t address, size_t bytes) { munmap(reinterpret_cast<void*>(address), bytes); }

}  // namespace sim::arena
