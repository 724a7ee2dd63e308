#include "policy/gpu_time.h"

#include <algorithm>

#include "base/tuning.h"
#include "policy/share.h"

namespace gpufence {

// ---- the union of what several processes saw running ----

namespace {

constexpr uint64_t kGapLengthBits = 24;
constexpr uint64_t kGapEndBits = 40;
constexpr uint64_t kGapEndMask = (uint64_t{1} << kGapEndBits) - 1;

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
  return (end & kGapEndMask) << kGapLengthBits | (end - begin);
}

// Steps since a gap ended; one that ends in the future is the oldest of all, as is none.
uint64_t AgeOfGap(uint64_t word, uint64_t now_ns) {
  return word != 0 ? (now_ns / kGapStepNs - (word >> kGapLengthBits)) & kGapEndMask : kGapEndMask;
}

// False when the word holds no gap, or one that is too old.
bool UnpackGap(uint64_t word, uint64_t now_ns, Interval* gap) {
  const uint64_t steps = word & ((uint64_t{1} << kGapLengthBits) - 1);
  const uint64_t now = now_ns / kGapStepNs;
  const uint64_t age = AgeOfGap(word, now_ns);
  if (steps == 0 || age > kGapLifeNs / kGapStepNs || age + steps > now) return false;
  *gap = {(now - age - steps) * kGapStepNs, (now - age) * kGapStepNs};
  return true;
}

void PushGap(CoreTenant* tenant, Interval interval, uint64_t now_ns) {
  const uint64_t word = PackGap(interval);
  if (word == 0) return;
  Word* oldest = nullptr;
  uint64_t oldest_word = 0;
  uint64_t oldest_age = 0;
  for (Word& place : tenant->gaps) {
    const uint64_t seen = place.load(std::memory_order_relaxed);
    const uint64_t age = AgeOfGap(seen, now_ns);
    if (age < oldest_age) continue;
    oldest = &place;
    oldest_word = seen;
    oldest_age = age;
  }
  // Somebody else was quicker: then a gap is lost, which is time that nobody pays for.
  oldest->compare_exchange_strong(oldest_word, word, std::memory_order_relaxed);
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

// ---- the rate of late ----

void NoteRate(CoreTenant* tenant, uint32_t at_least, uint64_t now_ns) {
  const uint64_t charged_ns = tenant->charged_ns.load(std::memory_order_relaxed);
  const uint64_t last_ns = tenant->rate_ns.load(std::memory_order_relaxed);
  uint64_t rate = std::min<uint64_t>(RateOf(*tenant), kWholeShare);
  const uint64_t passed_ns = now_ns - last_ns;
  if (last_ns > now_ns || passed_ns >= kTuning.mean_over_ns) {
    const uint64_t before_ns = tenant->rate_charged_ns.load(std::memory_order_relaxed);
    const uint64_t more_ns = charged_ns - std::min(charged_ns, before_ns);
    if (last_ns < now_ns && passed_ns < kTuning.most_wait_ns) {
      rate = (rate + std::min(more_ns * kWholeShare / passed_ns, uint64_t{kWholeShare})) / 2;
    }
    tenant->rate_ns.store(now_ns, std::memory_order_relaxed);
    tenant->rate_charged_ns.store(charged_ns, std::memory_order_relaxed);
  }
  tenant->rate.store(std::max<uint64_t>(rate, at_least), std::memory_order_relaxed);
}

// ---- runs beside those of neighbours ----

namespace {

constexpr uint64_t kStepNs = 16;
constexpr int kRunLengthBits = 22;
constexpr uint64_t kMostSteps = (uint64_t{1} << kRunLengthBits) - 1;
constexpr int kPartBits = 10;
constexpr uint64_t kRunEndMask = (uint64_t{1} << 32) - 1;
static_assert(kParts < 1 << kPartBits);

// Of the first `ns` in which so many others have work as well, theirs, and the GPU's way from one
// to the other. Whoever came last has the first slice.
uint64_t OthersUntil(uint64_t ns, uint32_t others, bool came_last) {
  const uint64_t round_ns = (others + 1) * (kSliceNs + kSwitchNs);
  const uint64_t theirs_ns = round_ns - kSliceNs;
  const uint64_t rest_ns = ns % round_ns;
  const uint64_t of_rest_ns =
      came_last ? rest_ns - std::min(rest_ns, kSliceNs) : std::min(rest_ns, theirs_ns);
  return ns / round_ns * theirs_ns + of_rest_ns;
}

bool Continues(Run before, Run run, uint64_t pause_ns) {
  return run.begin_ns <= before.end_ns + pause_ns && before.begin_ns <= run.end_ns + pause_ns;
}

uint64_t LengthOf(Run run) { return run.end_ns - run.begin_ns; }

// Where both tell of the same time, as processes of a container do, each has told a part of what
// was used.
Run Joined(Run one, Run other) {
  Run all = {std::min(one.begin_ns, other.begin_ns), std::max(one.end_ns, other.end_ns), 0};
  if (one.part == 0) return all;
  const uint64_t used = one.part * LengthOf(one) + other.part * LengthOf(other);
  all.part = static_cast<uint32_t>(
      std::clamp((used + LengthOf(all) / 2) / LengthOf(all), uint64_t{1}, uint64_t{kParts}));
  return all;
}

// Of a time in which a container used the GPU for a part, and waited for the host for the rest, the
// GPU's ways to it and back are a part as well: there are some with each slice that somebody else
// had meanwhile.
uint64_t TakenNs(uint64_t ns, uint32_t part) {
  const uint64_t used_ns = ns * std::min(part, kParts) / kParts;
  return used_ns + (ns - used_ns) * kSwitchNs * 2 / (kSliceNs + 2 * kSwitchNs);
}

}  // namespace

uint64_t PackRun(Run run) {
  const uint64_t end = run.end_ns / kStepNs;
  const uint64_t begin = run.begin_ns / kStepNs;
  if (begin >= end) return 0;
  const uint64_t part = std::min(run.part, kParts);
  return (end & kRunEndMask) << (kRunLengthBits + kPartBits) | part << kRunLengthBits |
         std::min(end - begin, kMostSteps);
}

bool UnpackRun(uint64_t word, uint64_t now_ns, Run* run) {
  const uint64_t steps = word & kMostSteps;
  const uint64_t now = now_ns / kStepNs;
  const uint64_t age = (now - (word >> (kRunLengthBits + kPartBits))) & kRunEndMask;
  if (steps == 0 || age > kTuning.lately_ns / kStepNs || age + steps > now) return false;
  *run = {(now - age - steps) * kStepNs, (now - age) * kStepNs,
          static_cast<uint32_t>(word >> kRunLengthBits) & kParts};
  return true;
}

void NoteRun(Word* runs, size_t count, Run run, uint64_t now_ns) {
  Word* place = nullptr;
  uint64_t place_word = 0;
  uint64_t oldest_ns = UINT64_MAX;
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = runs[i].load(std::memory_order_relaxed);
    Run there = {0, 0, 0};
    const bool is_there = UnpackRun(word, now_ns, &there);
    if (is_there && (run.part == 0) == (there.part == 0) &&
        Continues(there, run, 2 * kSwitchNs - kTuning.doubt_ns)) {
      run = Joined(there, run);
      place = &runs[i];
      place_word = word;
      break;
    }
    const uint64_t end_ns = is_there ? there.end_ns : 0;
    if (end_ns >= oldest_ns) continue;
    place = &runs[i];
    place_word = word;
    oldest_ns = end_ns;
  }
  place->compare_exchange_strong(place_word, PackRun(run), std::memory_order_relaxed);
}

Stretch NoteStretch(Word* stretch, Run run, uint64_t now_ns) {
  Run before;
  uint64_t told_ns = 0;
  const uint64_t word = stretch->load(std::memory_order_relaxed);
  run.part = 0;
  if (UnpackRun(word, now_ns, &before) && Continues(before, run, kTuning.run_no_pause_ns)) {
    told_ns = LengthOf(before);
    run = Joined(before, run);
  }
  stretch->store(PackRun(run), std::memory_order_relaxed);
  return {LengthOf(run), LengthOf(run) - told_ns};
}

void Meeting::Add(Run run, uint32_t whose) {
  const bool is_whole = together_ == Together::kBySlices && run.part == 0 &&
                        LengthOf(run) <= kSliceNs + kTuning.doubt_ns;
  const bool changes_hands = together_ == Together::kBySlices && (is_whole || run.part != 0);
  if (whose != kOurs && changes_hands) {
    AddWhole({run.begin_ns - kSwitchNs, is_whole ? run.end_ns + kSwitchNs : run.begin_ns, 0},
             whose);
    if (is_whole) return;
    AddWhole({run.end_ns, run.end_ns + kSwitchNs, 0}, whose);
  }
  AddPiece(run, whose, is_whole);
}

void Meeting::AddWhole(Run run, uint32_t whose) { AddPiece(run, whose, true); }

void Meeting::AddPiece(Run run, uint32_t whose, bool is_whole) {
  const uint64_t begin_ns = std::max(run.begin_ns, from_ns_);
  const uint64_t end_ns = std::min(run.end_ns, to_ns_);
  if (begin_ns >= end_ns || count_ == kMostRuns) return;
  pieces_[count_++] = {run.begin_ns, begin_ns, end_ns, whose, run.part, is_whole};
}

// Runs of one container may overlap where several processes told of them: then too much of it is
// counted, and as much too much as others'.
uint64_t Meeting::OwnNs() const {
  uint64_t own_ns = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (pieces_[i].whose == kOurs) own_ns += pieces_[i].end_ns - pieces_[i].begin_ns;
  }
  return own_ns;
}

uint64_t Meeting::OthersNs() const {
  uint64_t others_ns = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Piece& own = pieces_[i];
    if (own.whose != kOurs || own.part != 0 || own.is_whole) continue;
    others_ns += together_ == Together::kBySlices ? OthersNs(own) : BesideNs(own);
  }
  return others_ns;
}

// Neighbours' pieces at a moment; returns when they change, or the own one ends.
template <typename Visit>
uint64_t Meeting::VisitTheirs(const Piece& own, uint64_t at_ns, Visit visit) const {
  uint64_t next_ns = own.end_ns;
  for (size_t i = 0; i < count_; ++i) {
    const Piece& piece = pieces_[i];
    if (piece.whose == kOurs || piece.end_ns <= at_ns) continue;
    const bool is_there = piece.begin_ns <= at_ns;
    next_ns = std::min(next_ns, is_there ? piece.end_ns : piece.begin_ns);
    if (is_there) visit(piece);
  }
  return next_ns;
}

// From one change to the next: whoever had the GPU to itself has all of it; the others take turns
// in it by slices.
uint64_t Meeting::OthersNs(const Piece& own) const {
  uint64_t others_ns = 0;
  for (uint64_t at_ns = own.begin_ns; at_ns < own.end_ns;) {
    bool is_somebodys = false;
    uint32_t others = 0;
    uint32_t last = kOurs;
    uint64_t their_ns = 0;
    uint32_t parts = 0;
    const uint64_t next_ns = VisitTheirs(own, at_ns, [&](const Piece& piece) {
      is_somebodys |= piece.is_whole;
      parts += piece.part;
      if (piece.part != 0) return;
      others += piece.whose != last ? 1 : 0;
      last = piece.whose;
      their_ns = std::max(their_ns, piece.began_ns);
    });
    const uint64_t ns = next_ns - at_ns;
    uint64_t deep_ns = 0;
    if (is_somebodys) {
      deep_ns = ns;
    } else if (others != 0) {
      const uint64_t since_ns = std::max(own.began_ns, their_ns);
      const bool came_last = own.began_ns >= their_ns;
      deep_ns = OthersUntil(next_ns - since_ns, others, came_last) -
                OthersUntil(at_ns - since_ns, others, came_last);
    }
    others_ns += deep_ns + (parts != 0 ? TakenNs(ns - deep_ns, parts) : 0);
    at_ns = next_ns;
  }
  return others_ns;
}

// Runs of one neighbour come one after the other, and do not overlap but by what events doubt.
uint64_t Meeting::BesideNs(const Piece& own) const {
  uint64_t others_ns = 0;
  for (uint64_t at_ns = own.begin_ns; at_ns < own.end_ns;) {
    uint64_t parts = 0;
    uint32_t last = kOurs;
    const uint64_t next_ns = VisitTheirs(own, at_ns, [&](const Piece& piece) {
      if (piece.whose != last) parts += piece.part != 0 ? piece.part : kParts;
      last = piece.whose;
    });
    others_ns += (next_ns - at_ns) * parts / (kParts + parts);
    at_ns = next_ns;
  }
  return others_ns;
}

}  // namespace gpufence
