#include "policy/core_busy.h"

namespace gpufence {
namespace {

constexpr uint64_t kLengthBits = 24;
constexpr uint64_t kEndBits = 40;
constexpr uint64_t kEndMask = (uint64_t{1} << kEndBits) - 1;

// What ended longer ago is nobody's any more: reports come within a tick, or from processes that
// were stopped. Far below the time after which a gap's end repeats itself (an hour).
constexpr uint64_t kGapLifeNs = 2'000'000'000;

struct Interval {
  uint64_t begin_ns;
  uint64_t end_ns;
};

// A gap in one word: its end and its length, in steps; 0: none.
uint64_t PackGap(Interval gap) {
  const uint64_t end = gap.end_ns / kGapStepNs;
  uint64_t begin = (gap.begin_ns + kGapStepNs - 1) / kGapStepNs;
  if (begin >= end) return 0;
  if (end - begin > kLongestGapNs / kGapStepNs) begin = end - kLongestGapNs / kGapStepNs;
  return (end & kEndMask) << kLengthBits | (end - begin);
}

// False when the word holds no gap, or one that is too old.
bool UnpackGap(uint64_t word, uint64_t now_ns, Interval* gap) {
  const uint64_t steps = word & ((uint64_t{1} << kLengthBits) - 1);
  const uint64_t now = now_ns / kGapStepNs;
  const uint64_t age = (now - (word >> kLengthBits)) & kEndMask;
  if (steps == 0 || age > kGapLifeNs / kGapStepNs || age + steps > now) return false;
  *gap = {(now - age - steps) * kGapStepNs, (now - age) * kGapStepNs};
  return true;
}

void PushGap(CoreTenant* tenant, Interval interval, uint64_t now_ns) {
  const uint64_t word = PackGap(interval);
  if (word == 0) return;
  Word* oldest = nullptr;
  uint64_t oldest_word = 0;
  uint64_t oldest_end_ns = UINT64_MAX;
  for (Word& place : tenant->gaps) {
    uint64_t seen = place.load(std::memory_order_relaxed);
    Interval there = {0, 0};
    if (!UnpackGap(seen, now_ns, &there)) there.end_ns = 0;
    if (there.end_ns >= oldest_end_ns) continue;
    oldest = &place;
    oldest_word = seen;
    oldest_end_ns = there.end_ns;
  }
  // Somebody else was quicker: then a gap is lost, which is time that nobody pays for.
  if (oldest != nullptr) {
    oldest->compare_exchange_strong(oldest_word, word, std::memory_order_relaxed);
  }
}

// Takes what the interval covers out of one gap; returns how much that is.
uint64_t TakeFromGap(CoreTenant* tenant, Word* place, Interval interval, uint64_t now_ns) {
  uint64_t word = place->load(std::memory_order_relaxed);
  Interval gap;
  while (UnpackGap(word, now_ns, &gap)) {
    const Interval taken = {interval.begin_ns > gap.begin_ns ? interval.begin_ns : gap.begin_ns,
                            interval.end_ns < gap.end_ns ? interval.end_ns : gap.end_ns};
    if (taken.begin_ns >= taken.end_ns) return 0;
    const uint64_t before = PackGap({gap.begin_ns, taken.begin_ns});
    if (!place->compare_exchange_weak(word, before, std::memory_order_relaxed)) continue;
    PushGap(tenant, {taken.end_ns, gap.end_ns}, now_ns);
    return taken.end_ns - taken.begin_ns;
  }
  return 0;
}

}  // namespace

uint64_t AddBusy(CoreTenant* tenant, uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns) {
  if (end_ns > now_ns) end_ns = now_ns;
  if (begin_ns >= end_ns) return 0;
  uint64_t until_ns = tenant->charged_until_ns.load(std::memory_order_relaxed);
  uint64_t added_ns = 0;
  for (;;) {
    // A moment in the future was never charged: the word is damaged.
    const uint64_t sane_ns = until_ns > now_ns + kLongestGapNs ? begin_ns : until_ns;
    if (end_ns <= sane_ns) break;
    if (!tenant->charged_until_ns.compare_exchange_weak(until_ns, end_ns,
                                                        std::memory_order_relaxed)) {
      continue;
    }
    if (begin_ns > sane_ns) {
      PushGap(tenant, {sane_ns, begin_ns}, now_ns);
      return end_ns - begin_ns;
    }
    added_ns = end_ns - sane_ns;
    end_ns = sane_ns;
    break;
  }
  for (Word& place : tenant->gaps) {
    added_ns += TakeFromGap(tenant, &place, {begin_ns, end_ns}, now_ns);
  }
  return added_ns;
}

}  // namespace gpufence
