#include "policy/gang.h"

#include <string.h>

#include <algorithm>
#include <iterator>

#include "base/tuning.h"
#include "policy/share.h"

namespace gpufence {
namespace {

// NCCL, what vLLM and SGLang do themselves, and PyTorch's symmetric memory.
constexpr const char* kCollectives[] = {"nccl", "cross_device_reduce", "shot_all_reduce",
                                        "multimem_all_reduce"};

// A count, and when it changed, in steps of about a millisecond, in one word.
constexpr int kCountBits = 24;
constexpr uint32_t kCountMask = (1u << kCountBits) - 1;
constexpr int kStepBits = 20;

constexpr uint64_t kNsInUs = 1000;
constexpr uint64_t kIsQuiet = 1;
constexpr uint64_t kIsBehind = 2;

uint64_t LaunchedNs(uint64_t word) { return (word >> kCountBits) << kStepBits; }

// By how many collectives one count is ahead of another; counts wrap.
int32_t LeadOf(uint64_t launched, uint32_t count) {
  const auto lead = static_cast<uint32_t>(launched) - count;
  return static_cast<int32_t>(lead << (32 - kCountBits)) >> (32 - kCountBits);
}

// Others hold with work left while the asker has none: one of them waits for it.
bool IsAwaited(const GangView& view, const GangAsker& asker, GangWait* wait, uint64_t now_ns) {
  if (!asker.is_behind || !asker.is_quiet || !view.is_unfinished) {
    wait->stalled_ns = 0;
    return false;
  }
  if (asker.was_awaited) return true;
  if (wait->stalled_ns == 0) wait->stalled_ns = now_ns;
  return now_ns - wait->stalled_ns >= kTuning.pause_ns;
}

// Whether the asker can pay, and all who hold can, or it has waited for them long enough.
bool IsPaid(uint64_t others_ns, const GangAsker& asker, GangWait* wait, uint64_t now_ns) {
  if (asker.wait_ns != 0) {
    wait->paid_ns = 0;
    return false;
  }
  if (wait->paid_ns == 0) wait->paid_ns = now_ns;
  return others_ns == 0 || now_ns - wait->paid_ns >= kTuning.most_wait_ns;
}

// Before it asks again at the latest.
uint64_t NapNs(const GangView& view, const GangAsker& asker) {
  if (asker.was_awaited) return kTuning.gang_at_once_ns;
  const bool is_at_rest = view.holding == view.members && !view.is_unfinished && asker.is_quiet;
  return is_at_rest ? kTuning.look_ns : kTuning.soon_ns;
}

}  // namespace

bool IsCollectiveName(const char* name) {
  return std::any_of(std::begin(kCollectives), std::end(kCollectives),
                     [name](const char* part) { return strstr(name, part) != nullptr; });
}

uint64_t PackLaunched(uint32_t count, uint64_t now_ns) {
  return (now_ns >> kStepBits) << kCountBits | (count & kCountMask);
}

uint64_t PackHeld(bool is_behind, bool is_quiet, uint64_t now_ns) {
  return now_ns / kNsInUs << 2 | (is_behind ? kIsBehind : 0u) | (is_quiet ? kIsQuiet : 0u);
}

void AddToGang(GangView* view, GangWords words, uint64_t due_ns, uint64_t now_ns) {
  if (!IsRecent(LaunchedNs(words.launched), now_ns, kTuning.remembered_ns)) return;
  ++view->members;
  const bool holds = IsRecent((words.held >> 2) * kNsInUs, now_ns, kTuning.silent_ns);
  const bool is_quiet = holds && (words.held & kIsQuiet) != 0;
  const int32_t lead = LeadOf(words.launched, view->count);
  if (lead > 0) {
    const auto ahead = static_cast<uint32_t>(lead);
    if (is_quiet) {
      view->quiet_lead = std::max(view->quiet_lead, ahead);
    } else if (ahead <= kMostLead) {
      view->lead = std::max(view->lead, ahead);
    }
  }
  if (!holds) return;
  ++view->holding;
  view->is_unfinished |= !is_quiet && (words.held & kIsBehind) != 0;
  if (HeldForNs(due_ns, now_ns) > HeldForNs(view->due_ns, now_ns)) view->due_ns = due_ns;
}

GangAnswer AskGang(const GangView& view, const GangAsker& asker, GangWait* wait, uint64_t now_ns) {
  const bool may_go_on = asker.owed_ns < static_cast<int64_t>(kTuning.gang_lasts_ns);
  // A lead may be one of numbers alone: with so many queued, all would be held at other places.
  if (view.lead != 0 && may_go_on && (!asker.is_fed || asker.is_quiet)) return {};
  const bool may_hold = asker.is_behind || wait->waits ||
                        asker.owed_ns >= kTuning.most_owed_between_ns ||
                        asker.queued_ns >= static_cast<int64_t>(kTuning.most_wait_ns);
  if (!may_hold || (asker.wait_ns == 0 && view.holding == 0)) return {};

  if (IsAwaited(view, asker, wait, now_ns) && may_go_on) return {0, true};
  const uint64_t others_ns = HeldForNs(view.due_ns, now_ns);
  if (IsPaid(others_ns, asker, wait, now_ns)) return {};
  wait->waits = true;
  return {std::min(std::max(asker.wait_ns, others_ns), NapNs(view, asker)), false};
}

}  // namespace gpufence
