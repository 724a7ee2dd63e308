#include "device/yield_points.h"

#include <sys/mman.h>

namespace gpufence {

// Not in a child: its parent's writes would go to a copy of what the GPU reads.
bool YieldPoints::Map() {
  if (pages_ != nullptr) return true;
  constexpr size_t kBytes = kMostContexts * kPageBytes;
  void* pages =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  if (madvise(pages, kBytes, MADV_DONTFORK) != 0) {
    munmap(pages, kBytes);
    return false;
  }
  pages_ = static_cast<char*>(pages);
  return true;
}

void* YieldPoints::GiveWord(uint32_t context, uint32_t ordinal) {
  if (pages_ == nullptr || context >= kMostContexts) return nullptr;
  WordOf(context)->store(kGoesOn, std::memory_order_relaxed);
  ordinals_[context].store(ordinal + 1, std::memory_order_release);
  return WordOf(context);
}

void YieldPoints::Write(uint32_t ordinal, uint32_t word) {
  for (uint32_t i = 0; i < kMostContexts; ++i) {
    if (ordinals_[i].load(std::memory_order_acquire) != ordinal + 1) continue;
    WordOf(i)->store(word, std::memory_order_release);
  }
}

// Said again too, as another context may have got a word meanwhile.
void YieldPoints::Close(uint32_t ordinal) {
  if (!IsClosed(ordinal)) changes_[ordinal % kMostDevices].fetch_add(1, std::memory_order_relaxed);
  Write(ordinal, kStands);
}

void YieldPoints::Open(uint32_t ordinal) {
  Write(ordinal, kGoesOn);
  if (IsClosed(ordinal)) changes_[ordinal % kMostDevices].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gpufence
