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
  words[kBytesToHold / sizeof *words].store(HoldOf(ordinal).open.load());
  ordinals_[context].store(ordinal + 1);
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

// ---- hold points ----

namespace {

// A slower thread must not close again what another one opened.
void Raise(std::atomic<uint32_t>* word, uint32_t number) {
  uint32_t seen = word->load();
  while (static_cast<int32_t>(number - seen) > 0 && !word->compare_exchange_weak(seen, number)) {
  }
}

}  // namespace

uint32_t YieldPoints::CloseHold(uint32_t ordinal) {
  Hold& hold = HoldOf(ordinal);
  uint32_t open = hold.open.load();
  hold.last.compare_exchange_strong(open, open + 1);
  return hold.last.load();
}

// Whoever closes one sees it open, and the words may be another thread's to raise yet: then it
// stands for that moment.
void YieldPoints::OpenHoldsUpTo(uint32_t ordinal, uint32_t number) {
  Raise(&HoldOf(ordinal).open, number);
  ForEachOf(ordinal, [=](std::atomic<uint32_t>* words) {
    Raise(&words[kBytesToHold / sizeof *words], number);
  });
}

void YieldPoints::OpenHold(uint32_t ordinal) {
  OpenHoldsUpTo(ordinal, HoldOf(ordinal).last.load());
}

void YieldPoints::OpenHoldsForGood(uint32_t ordinal) {
  constexpr uint32_t kMany = 1u << 30;
  Raise(&HoldOf(ordinal).last, HoldOf(ordinal).last.load() + kMany);
  OpenHold(ordinal);
}

}  // namespace gpufence
