// Collectives in the launch path: who takes part, and what a launch that may be held asks.
#include <algorithm>

#include "base/futex.h"
#include "hooks/cores/core_pace.h"
#include "policy/share.h"

namespace gpufence {
namespace {

// What a process owed when it saw first that others seem to wait for it: 0 where they do not. It
// may have waited for them as long, and to let them pay for waiting in turn would never end.
int64_t OwedBefore(CoreGang* gang, const GangView& view, int64_t owed_ns) {
  int64_t before_ns = gang->owed_before_ns.load(std::memory_order_relaxed);
  if (view.lead == 0 && !view.is_unfinished) {
    before_ns = 0;
  } else if (before_ns == 0) {
    before_ns = std::clamp(owed_ns, int64_t{1}, kMostOwedBeforeNs);
  }
  gang->owed_before_ns.store(before_ns, std::memory_order_relaxed);
  return before_ns;
}

// For the launches behind this one.
void Remember(CoreGang* gang, const GangView& view, GangAnswer answer) {
  if (answer.is_uncounted) {
    gang->uncounted.store(1, std::memory_order_relaxed);
    gang->awaited.store(1, std::memory_order_relaxed);
  } else if (!view.is_unfinished) {
    gang->awaited.store(0, std::memory_order_relaxed);
  }
}

}  // namespace

void NoteCollective(CoreDevice* device) {
  CoreGang& gang = device->gang;
  const uint64_t now_ns = NowNs();
  gang.met_ns.store(now_ns, std::memory_order_relaxed);
  uint32_t count = gang.count.load(std::memory_order_relaxed);
  if (gang.uncounted.exchange(0, std::memory_order_relaxed) == 0) {
    count = gang.count.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  device->seat.TellCollectives(count, now_ns);
  device->closed.store(1, std::memory_order_release);
}

uint64_t GangHold::Ask(Cores* cores, CoreDevice* device, HoldFor hold, uint64_t now_ns) {
  CoreGang& gang = device->gang;
  const uint64_t met_ns = gang.met_ns.load(std::memory_order_relaxed);
  count_ = gang.count.load(std::memory_order_relaxed);
  const bool is_behind = count_ != gang.asked.load(std::memory_order_relaxed);
  if (!is_behind && !IsRecent(met_ns, now_ns, kCountLastsNs)) return hold.budget_ns;
  is_asked_ = true;
  GangView view = device->seat.SeeGang(count_, now_ns);
  // Directly behind one, or while others wait, it takes part however long the last one waited.
  const bool takes_part = is_behind || view.lead != 0 || IsRecent(met_ns, now_ns, kGangLastsNs);
  if (view.members == 0 || !takes_part) return hold.budget_ns;
  if (view.quiet_lead != 0) view = CountAs(device, view.quiet_lead, met_ns, now_ns);

  is_awaited_ = view.is_unfinished && gang.awaited.load(std::memory_order_relaxed) != 0;
  const auto fed_ns = static_cast<int64_t>(CostOf(kFedNs, device->seat.ShareNow(now_ns)));
  const GangAsker asker = {.wait_ns = hold.budget_ns,
                           .owed_ns = hold.owed_ns - OwedBefore(&gang, view, hold.owed_ns),
                           .queued_ns = hold.queued_ns,
                           .is_behind = is_behind,
                           .is_quiet = !cores->markers.streams.IsActive(device->ordinal),
                           .is_fed = hold.queued_ns >= fed_ns,
                           .was_awaited = is_awaited_};
  const GangAnswer answer = AskGang(view, asker, &wait_, now_ns);
  Remember(&gang, view, answer);
  if (answer.wait_ns != 0) {
    holds_ = true;
    device->seat.TellGangHeld(asker.is_behind, asker.is_quiet, now_ns);
  }
  return answer.wait_ns;
}

// Others have counted so many more of the collectives that this one launched.
GangView GangHold::CountAs(CoreDevice* device, uint32_t more, uint64_t met_ns, uint64_t now_ns) {
  CoreGang& gang = device->gang;
  gang.asked.fetch_add(more, std::memory_order_relaxed);
  count_ = gang.count.fetch_add(more, std::memory_order_relaxed) + more;
  device->seat.TellCollectives(count_, met_ns);
  return device->seat.SeeGang(count_, now_ns);
}

void GangHold::End(CoreDevice* device) {
  if (is_asked_) device->gang.asked.store(count_, std::memory_order_relaxed);
  if (holds_) device->seat.TellGangGoesOn();
}

}  // namespace gpufence
