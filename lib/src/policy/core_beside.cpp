// A seat beside its neighbours: what ran at the same time is shared, and whoever has a deep queue
// takes turns.
#include <algorithm>

#include "base/part.h"
#include "base/pauses.h"
#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/gpu_time.h"
#include "policy/share.h"
#include "policy/turn.h"

namespace gpufence {
namespace {

// What was given back and is not counted yet; more is a word that went wrong.
constexpr uint64_t kMostReturnedNs = 10'000'000'000;

// Whoever waits for its work after less GPU time wants that soon: beside others it would have to
// wait for their turn in between. Without turns neighbours' slices are in what was charged until
// they have told of theirs: as long again beside one.
uint64_t PieceNs(bool takes_turns) { return (takes_turns ? 2 : 4) * kSliceNs; }

// `busy_ns` of a run were charged, and the pauses between its kernels belong to that: all but idle
// time. A sibling may have told of the rest.
uint64_t WithPausesNs(const RanNs& ran, uint64_t busy_ns) {
  if (ran.end_ns <= ran.begin_ns) return 0;
  const uint64_t pauses_ns = ran.begin_ns - std::min(ran.since_ns, ran.begin_ns);
  const uint64_t kept_ns = pauses_ns - std::min(ran.idle_ns, pauses_ns);
  return busy_ns + PartOf(busy_ns, kept_ns, ran.end_ns - ran.begin_ns);
}

}  // namespace

// `busy_ns` of it were charged, and not by a sibling before.
void CoreSeat::NoteRan(const RanNs& ran, uint64_t busy_ns, uint64_t now_ns) {
  const uint64_t end_ns = std::min(ran.end_ns, now_ns);
  if (end_ns <= ran.since_ns) return;
  const uint64_t part =
      std::clamp(busy_ns * kParts / (end_ns - ran.since_ns), uint64_t{1}, uint64_t{kParts});
  const Run run = {ran.since_ns, end_ns, ran.is_own ? static_cast<uint32_t>(part) : 0};
  NoteRun(tenant().runs, kCoreRuns, run, now_ns);
  const Stretch stretch = NoteStretch(&tenant().stretch, run, now_ns);
  const uint64_t piece_ns = __atomic_add_fetch(&unwaited_ns_, busy_ns, __ATOMIC_RELAXED);
  const bool is_piece = piece_ns < PieceNs(TakesTurns());
  Word& mean = row().run_ns;
  mean.store(MeanRunNs(mean.load(std::memory_order_relaxed), is_piece ? 0 : stretch.ns, busy_ns),
             std::memory_order_relaxed);
  NoteDensity(ran, busy_ns, stretch.new_ns);
}

// What is surely one's own says nothing about neighbours' time: none of that was charged.
void CoreSeat::NoteDensity(const RanNs& ran, uint64_t busy_ns, uint64_t new_ns) {
  Word& word = row().density;
  Density density = UnpackDensity(word.load(std::memory_order_relaxed));
  density.kernels = MeanDensity(density.kernels, busy_ns, new_ns);
  if (!ran.is_own) {
    density.charged = MeanDensity(density.charged, WithPausesNs(ran, busy_ns), new_ns);
  }
  word.store(PackDensity(density), std::memory_order_relaxed);
}

void CoreSeat::NoteWait(uint64_t now_ns) {
  const uint64_t piece_ns = __atomic_load_n(&unwaited_ns_, __ATOMIC_RELAXED);
  __atomic_store_n(&unwaited_ns_, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&waited_ns_, now_ns, __ATOMIC_RELAXED);
  Word& mean = row().run_ns;
  const uint64_t mean_ns = mean.load(std::memory_order_relaxed);
  if (mean_ns == 0 || piece_ns == 0 || piece_ns >= PieceNs(TakesTurns())) return;
  // The queue of another process may be as deep as before.
  if (HasBusySiblings(now_ns)) return;
  mean.store(MeanRunBehindPieceNs(mean_ns), std::memory_order_relaxed);
}

// What ran while neighbours' work did was charged as if it had run alone, since nobody had told of
// theirs yet. Now they have: what was theirs is given back. One process of the container does so
// for each stretch of time.
void CoreSeat::ShareWithNeighbours(uint64_t now_ns) {
  const uint64_t to_ns = now_ns - kToldNs;
  uint64_t from_ns = row().compared_ns.load(std::memory_order_relaxed);
  if (from_ns < to_ns && to_ns - from_ns < kTuning.look_ns) return;
  // Another thread or process read the clock later, and was here sooner. More is a word that went
  // wrong.
  if (from_ns >= to_ns && from_ns - to_ns < kTuning.lately_ns) return;
  if (!row().compared_ns.compare_exchange_strong(from_ns, to_ns, std::memory_order_relaxed)) return;
  if (from_ns > to_ns || to_ns - from_ns > kTuning.lately_ns) from_ns = to_ns - kTuning.lately_ns;
  Meeting meeting(from_ns, to_ns, together_);
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  const auto add = [&](const CoreTenant& one, auto&& to) {
    for (const Word& word : one.runs) {
      Run run;
      if (UnpackRun(word.load(std::memory_order_relaxed), now_ns, &run)) to(run);
    }
  };
  add(tenant(), [&](Run run) { meeting.AddOwn(run); });
  if (meeting.OwnNs() == 0) return;
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    if (i == kOwnTenant ||
        !IsRecent(tenants[i].beat_ns.load(std::memory_order_relaxed), now_ns, kTuning.lately_ns)) {
      continue;
    }
    meeting.AddNeighbour();
    add(tenants[i], [&](Run run) { meeting.AddTheirs(run); });
  }
  const Density density = UnpackDensity(row().density.load(std::memory_order_relaxed));
  // Side by side neighbours take a part of each kernel, and nothing comes between two of them.
  const uint64_t charged = together_ == Together::kBySlices ? density.charged : density.kernels;
  GiveBack(meeting.OthersNs() * charged / kWholeDensity, now_ns);
}

void CoreSeat::GiveBack(uint64_t busy_ns, uint64_t now_ns) {
  if (busy_ns == 0) return;
  const uint64_t cost_ns = CostOf(busy_ns, ShareNow(now_ns));
  Word& due = tenant().due_ns;
  uint64_t seen = due.load(std::memory_order_relaxed);
  while (seen > cost_ns &&
         !due.compare_exchange_weak(seen, seen - cost_ns, std::memory_order_relaxed)) {
  }
  tenant().returned_ns.fetch_add(busy_ns, std::memory_order_relaxed);
}

// The sum of what was charged only grows: whoever counts it would take less for a new beginning.
void CoreSeat::CountCharged(uint64_t busy_ns) {
  Word& returned = tenant().returned_ns;
  uint64_t word = returned.load(std::memory_order_relaxed);
  uint64_t left_ns = 0;
  uint64_t taken_ns = 0;
  do {
    left_ns = word > kMostReturnedNs ? 0 : word;  // a word that went wrong
    taken_ns = std::min(left_ns, busy_ns);
  } while (!returned.compare_exchange_weak(word, left_ns - taken_ns, std::memory_order_relaxed));
  tenant().charged_ns.fetch_add(busy_ns - taken_ns, std::memory_order_relaxed);
}

uint64_t CoreSeat::CalmUntilNs(uint64_t now_ns) const {
  if (!shares_device()) return 0;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const CoreTenant& other = tenants[i];
    if (i == kOwnTenant ||
        !IsRecent(other.beat_ns.load(std::memory_order_relaxed), now_ns, kTuning.silent_ns)) {
      continue;
    }
    const uint64_t idle_ns = other.idle_ns.load(std::memory_order_relaxed);
    if (idle_ns == 0 || IsRecent(idle_ns, now_ns, kTuning.pause_ns)) return 1;
  }
  return now_ns + kTuning.pause_ns;
}

namespace {

// From what it has told. Only its latest runs are kept: what lies before these is not known.
bool MayHaveRun(const CoreTenant& tenant, uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns) {
  size_t told = 0;
  uint64_t since_ns = UINT64_MAX;
  for (const Word& word : tenant.runs) {
    Run run;
    if (!UnpackRun(word.load(std::memory_order_relaxed), now_ns, &run)) continue;
    if (run.begin_ns < end_ns && run.end_ns > begin_ns) return true;
    ++told;
    since_ns = std::min(since_ns, run.begin_ns);
  }
  return told == kCoreRuns && since_ns > begin_ns;
}

}  // namespace

bool CoreSeat::OthersMayHaveRun(uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns) const {
  const bool is_told = shares_device() && IsRecent(begin_ns, now_ns, kTuning.lately_ns);
  if (!is_told || HasBusySiblings(now_ns)) return true;
  const CoreTenant* tenants = file_.region->tenants[place_.row];
  for (uint32_t i = 0; i < kMaxCoreTenants; ++i) {
    const uint64_t beat_ns = tenants[i].beat_ns.load(std::memory_order_relaxed);
    if (i != kOwnTenant && IsRecent(beat_ns, now_ns, kTuning.lately_ns) &&
        MayHaveRun(tenants[i], begin_ns, end_ns, now_ns)) {
      return true;
    }
  }
  return false;
}

// Ranks of a job that spans GPUs wait for each other: turns would have them wait on each GPU.
void CoreSeat::UpdateDepth(uint64_t now_ns) {
  Word& deep = row().is_deep;
  const uint64_t before = deep.load(std::memory_order_relaxed);
  const uint64_t active_ns = tenant().active_ns.load(std::memory_order_relaxed);
  const Density density = UnpackDensity(row().density.load(std::memory_order_relaxed));
  const Depth depth = {.was_deep = before != 0,
                       .density = density.kernels,
                       .run_ns = row().run_ns.load(std::memory_order_relaxed),
                       .is_active = IsRecent(active_ns, now_ns, kTuning.lately_ns),
                       .rested_ns = row().rested_ns.load(std::memory_order_relaxed)};
  const bool after =
      IsDeep(depth, now_ns) && !HasCollectives(now_ns) && together_ == Together::kBySlices;
  if (after != (before != 0)) deep.store(after ? 1 : 0, std::memory_order_seq_cst);
}

}  // namespace gpufence
