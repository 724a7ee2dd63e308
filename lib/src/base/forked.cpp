#include "base/forked.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace gpufence {
namespace {

// Kernels before 4.14 know no MADV_WIPEONFORK. There a handler wipes what is listed here; a raw
// clone runs no handlers, which those kernels have to live with.
struct Area {
  std::atomic<void*> address;
  std::atomic<size_t> bytes;
};

constexpr size_t kAreas = 512;
constinit Area areas[kAreas] = {};
constinit std::atomic<bool> handler_registered{false};

void WipeInChild() {
  for (Area& area : areas) {
    void* address = area.address.load(std::memory_order_relaxed);
    if (address != nullptr) memset(address, 0, area.bytes.load(std::memory_order_relaxed));
  }
}

bool ListForWiping(void* address, size_t bytes) {
  if (!handler_registered.exchange(true) && pthread_atfork(nullptr, nullptr, WipeInChild) != 0) {
    return false;
  }
  for (Area& area : areas) {
    void* expected = nullptr;
    if (area.address.compare_exchange_strong(expected, address)) {
      area.bytes.store(bytes);
      return true;
    }
  }
  return false;
}

}  // namespace

void* MapWipedOnFork(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  if (madvise(address, bytes, MADV_WIPEONFORK) != 0 && !ListForWiping(address, bytes)) {
    munmap(address, bytes);
    return nullptr;
  }
  return address;
}

void UnmapWipedOnFork(void* address, size_t bytes) {
  for (Area& area : areas) {
    void* expected = address;
    if (area.address.compare_exchange_strong(expected, nullptr)) break;
  }
  munmap(address, bytes);
}

}  // namespace gpufence
