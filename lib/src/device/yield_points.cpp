#include "device/yield_points.h"

#include <sys/mman.h>

namespace gpufence {

// Not in a child: its parent's writes would go to a copy of what the GPU reads.
bool YieldPoints::Map() {
  if (pages_ != nullptr) return true;
  constexpr size_t kBytes = kMostContexts * kContextBytes;
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  if (madvise(pages, kBytes, MADV_DONTFORK) != 0) {
    munmap(pages, kBytes);
    return false;
  }
  pages_ = static_cast<char*>(pages);
  return true;
}

void* YieldPoints::GiveWords(uint32_t context, uint32_t ordinal) {
  if (pages_ == nullptr || context >= kMostContexts) return nullptr;
  // Another context may have had them, and have ended where it stood.
  std::atomic<uint32_t>* words = WordsOf(context);
  words[0].store(kGoesOn, std::memory_order_relaxed);
  for (uint32_t i = 1; i <= kMostStreams; ++i) words[i].store(kWent, std::memory_order_relaxed);
  ordinals_[context].store(ordinal + 1, std::memory_order_release);
  return words;
}

void YieldPoints::Write(uint32_t ordinal, uint32_t word) {
  ForEachOf(ordinal,
            [=](std::atomic<uint32_t>* words) { words->store(word, std::memory_order_release); });
}

// Said again, too, as another context may have got words meanwhile.
void YieldPoints::Close(uint32_t ordinal) {
  Write(ordinal, kStands);
  if (!IsClosed(ordinal)) changes_[ordinal % kMostDevices].fetch_add(1, std::memory_order_relaxed);
}

void YieldPoints::Open(uint32_t ordinal) {
  Write(ordinal, kGoesOn);
  changes_[ordinal % kMostDevices].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gpufence
