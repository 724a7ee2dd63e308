// link: state
// One promise about ranks that are held together a run, with a clock that is a number; fails with
// the place that was not true.
//
//   gang_cases NAME
#include <string.h>

#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/gang.h"
#include "policy/share.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kNow = 1'000'000 * kMs;
constexpr uint32_t kCount = 1000;  // of the one who asks

// What one other says of itself.
struct Other {
  int lead = 0;
  bool holds = false;
  bool is_quiet = false;
  bool is_between = false;
  uint64_t due_ns = kNow;
  uint64_t launched_ns = kNow;
  uint64_t said_ns = kNow;  // that it holds
};

GangView ViewOf(std::initializer_list<Other> others, uint64_t now_ns = kNow) {
  GangView view = {};
  view.count = kCount;
  for (const Other& other : others) {
    const uint32_t count = kCount + static_cast<uint32_t>(other.lead);
    const uint64_t held = PackHeld(!other.is_between, other.is_quiet, other.said_ns);
    const GangWords words = {PackLaunched(count, other.launched_ns), other.holds ? held : 0};
    AddToGang(&view, words, other.due_ns, now_ns);
  }
  return view;
}

GangAsker Behind(uint64_t wait_ns) {
  return {.wait_ns = wait_ns,
          .owed_ns = static_cast<int64_t>(wait_ns),
          .queued_ns = 0,
          .is_behind = true,
          .is_quiet = true,
          .is_fed = false,
          .was_awaited = false};
}

GangAsker Between(uint64_t wait_ns) {
  GangAsker asker = Behind(wait_ns);
  asker.is_behind = false;
  return asker;
}

uint64_t WaitNs(const GangView& view, const GangAsker& asker) {
  GangWait wait = {};
  return AskGang(view, asker, &wait, kNow).wait_ns;
}

void Names() {
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
        "ncclKernel_AllReduce_RING_LL_Sum_float",
        "_ZN4vllm26cross_device_reduce_1stageIfLi2EEEvPNS_8RankDataE",
        "_ZN2at12_GLOBAL__N_126one_shot_all_reduce_kernelIfEEv"}) {
    CHECK(IsCollectiveName(name));
  }
  for (const char* name : {"", "gpufence_spin_ns", "ncc", "_Z13reduce_kernelv"}) {
    CHECK(!IsCollectiveName(name));
  }
}

// Neither a library that knows nothing of it nor a process that met nobody for a minute takes
// part.
void Members() {
  GangView view = {};
  AddToGang(&view, {0, 0}, 0, kNow);
  AddToGang(&view, {0, PackHeld(true, false, kNow)}, kNow + 50 * kMs, kNow);
  CHECK_EQ(view.members, 0);
  CHECK_EQ(view.holding, 0);
  CHECK_EQ(view.due_ns, 0);
  CHECK_EQ(ViewOf({{.launched_ns = kNow - kTuning.remembered_ns + 3 * kMs}}).members, 1);
  CHECK_EQ(ViewOf({{.launched_ns = kNow - kTuning.remembered_ns - 3 * kMs}}).members, 0);
}

// Who stands still between two collectives lets others wait who have launched the next one.
void Between() {
  const GangView view = ViewOf({{}});
  CHECK_EQ(WaitNs(view, Between(150 * kMs)), 0);
  CHECK(WaitNs(view, Behind(150 * kMs)) != 0);
  CHECK(WaitNs(view, Behind(1)) != 0);
  CHECK_EQ(WaitNs(view, Behind(0)), 0);
  // Beyond that it stands all the same, and until all is paid for.
  GangAsker queues = Between(50 * kMs);
  queues.queued_ns = kTuning.most_wait_ns;
  CHECK(WaitNs(view, queues) != 0);
  GangWait wait = {};
  CHECK(AskGang(view, Between(kTuning.most_owed_between_ns), &wait, kNow).wait_ns != 0);
  CHECK(AskGang(view, Between(kMs), &wait, kNow).wait_ns != 0);
  CHECK_EQ(AskGang(view, Between(0), &wait, kNow).wait_ns, 0);
}

// Somebody has launched a collective that we have not: it waits for us, whatever we owe.
void Lead() {
  for (const bool holds : {false, true}) {
    const GangView ahead = ViewOf({{}, {.lead = 2, .holds = holds}});
    CHECK_EQ(ahead.lead, 2);
    CHECK_EQ(WaitNs(ahead, Behind(50 * kMs)), 0);
    CHECK_EQ(WaitNs(ahead, Between(kTuning.most_owed_between_ns)), 0);
    CHECK(WaitNs(ahead, Behind(kTuning.gang_lasts_ns)) != 0);
  }
  CHECK(WaitNs(ViewOf({{.lead = -2, .holds = true}}), Behind(50 * kMs)) != 0);
  // Not for our next launch, while we have much queued that is not done.
  GangAsker fed = Behind(50 * kMs);
  fed.is_fed = true;
  CHECK_EQ(WaitNs(ViewOf({{.lead = 2}}), fed), 0);
  fed.is_quiet = false;
  CHECK(WaitNs(ViewOf({{.lead = 2}}), fed) != 0);
  fed.is_behind = false;
  CHECK_EQ(WaitNs(ViewOf({{.lead = 2}}), fed), 0);
  // Nobody can be so far ahead; and counts wrap.
  CHECK_EQ(ViewOf({{.lead = kMostLead + 1}}).lead, 0);
  GangView view = {};
  view.count = (1 << 24) - 1;
  AddToGang(&view, {PackLaunched(view.count + 3, kNow), 0}, 0, kNow);
  CHECK_EQ(view.lead, 3);
}

// All who hold go on together: at the moment at which the last of them can pay.
void Together() {
  const GangView view =
      ViewOf({{.holds = true, .is_quiet = true, .due_ns = kNow + 100'000}, {.holds = true}});
  CHECK_EQ(view.due_ns, kNow + 100'000);
  CHECK_EQ(WaitNs(view, Behind(0)), 100'000);
  CHECK_EQ(WaitNs(view, Behind(150'000)), 150'000);
  // Who does not hold goes on itself, and what it owes meanwhile is its own affair.
  CHECK_EQ(WaitNs(ViewOf({{.due_ns = kNow + 9 * kMs}}), Behind(0)), 0);
  CHECK_EQ(WaitNs(ViewOf({{.due_ns = kNow + 9 * kMs}, {.holds = true}}), Behind(0)), 0);
  // Nobody waits for others for ever, and a due moment that cannot be is none.
  GangWait wait = {};
  const auto owes_on = [&](uint64_t now_ns) {
    const GangView other = ViewOf({{.holds = true,
                                    .is_quiet = true,
                                    .due_ns = now_ns + 50 * kMs,
                                    .launched_ns = now_ns,
                                    .said_ns = now_ns}},
                                  now_ns);
    return AskGang(other, Behind(0), &wait, now_ns).wait_ns != 0;
  };
  CHECK(owes_on(kNow));
  CHECK(owes_on(kNow + kTuning.most_wait_ns - 1));
  CHECK(!owes_on(kNow + kTuning.most_wait_ns));
  AskGang(view, Behind(kMs), &wait, kNow + kTuning.most_wait_ns);  // it cannot pay any more
  CHECK(owes_on(kNow + kTuning.most_wait_ns));
  CHECK_EQ(WaitNs(ViewOf({{.holds = true, .due_ns = UINT64_MAX}}), Behind(0)), 0);
}

// A process that was stopped or killed while it held does not say so any more.
void Silent() {
  const uint64_t long_ago = kNow - kTuning.silent_ns;
  CHECK_EQ(ViewOf({{.holds = true, .said_ns = long_ago + 2'000}}).holding, 1);
  const GangView silent = ViewOf({{.holds = true, .due_ns = kNow + kMs, .said_ns = long_ago}});
  CHECK_EQ(silent.holding, 0);
  CHECK(!silent.is_unfinished);
  CHECK_EQ(WaitNs(silent, Behind(0)), 0);
}

// Who holds and has nothing left was waiting for nobody: where its count is greater, the two count
// differently.
void Offset() {
  const GangView view = ViewOf({{.lead = 5, .holds = true, .is_quiet = true}});
  CHECK_EQ(view.lead, 0);
  CHECK_EQ(view.quiet_lead, 5);
  CHECK(WaitNs(view, Behind(50 * kMs)) != 0);
}

// One holds with work left while we have none: it waits for our next collective, which it counted.
void Awaited() {
  const GangView view = ViewOf({{.holds = true}});
  GangWait wait = {};
  CHECK(AskGang(view, Behind(50 * kMs), &wait, kNow).wait_ns != 0);
  CHECK(AskGang(view, Behind(50 * kMs), &wait, kNow + kTuning.pause_ns - 1).wait_ns != 0);
  const GangAnswer goes = AskGang(view, Behind(50 * kMs), &wait, kNow + kTuning.pause_ns);
  CHECK_EQ(goes.wait_ns, 0);
  CHECK(goes.is_uncounted);
  // Once that was seen it goes on at once, behind each, until the other one's work is done.
  GangAsker known = Behind(50 * kMs);
  known.was_awaited = true;
  CHECK_EQ(WaitNs(view, known), 0);
  CHECK(WaitNs(ViewOf({{.holds = true, .is_quiet = true}}), known) != 0);
  known.is_quiet = false;
  CHECK(WaitNs(view, known) != 0);
  // What one has queued behind its last collective waits for nobody.
  GangWait other_wait = {};
  for (const uint64_t later_ns : {uint64_t{0}, 2 * kTuning.pause_ns}) {
    const GangView computes = ViewOf({{.holds = true, .is_between = true}});
    CHECK(AskGang(computes, Behind(50 * kMs), &other_wait, kNow + later_ns).wait_ns != 0);
  }
  // Not where it would lift the limit, nor between collectives, nor while we have work ourselves.
  CHECK(AskGang(view, Behind(kTuning.gang_lasts_ns), &wait, kNow + kTuning.pause_ns).wait_ns != 0);
  CHECK(AskGang(view, Between(kTuning.most_owed_between_ns), &wait, kNow + kTuning.pause_ns)
            .wait_ns != 0);
  CHECK(AskGang(view, Behind(50 * kMs), &wait, kNow + kTuning.pause_ns).wait_ns != 0);
  GangAsker busy = Behind(50 * kMs);
  busy.is_quiet = false;
  CHECK(AskGang(view, busy, &wait, kNow + 2 * kTuning.pause_ns).wait_ns != 0);
  CHECK(AskGang(view, Behind(50 * kMs), &wait, kNow + 2 * kTuning.pause_ns).wait_ns != 0);
}

// Words that hold anything: who owes much stands still, who can pay goes on after a while, and
// nobody sleeps for long.
void Garbage() {
  Random random(7);
  for (int round = 0; round < 2'000; ++round) {
    GangWait wait = {};
    uint64_t now_ns = kNow;
    for (;;) {
      GangView view = {};
      view.count = static_cast<uint32_t>(random.Next());
      for (uint64_t others = random.Below(5); others > 0; --others) {
        const auto word = [&](uint64_t sane) {
          return random.Below(2) == 0 ? sane : random.Next() >> random.Below(64);
        };
        const GangWords words = {
            word(PackLaunched(static_cast<uint32_t>(random.Next()), now_ns)),
            word(PackHeld(random.Below(2) == 0, random.Below(2) == 0, now_ns))};
        AddToGang(&view, words, word(now_ns + random.Below(100 * kMs)), now_ns);
      }
      GangAsker owing = Behind(kTuning.gang_lasts_ns);
      owing.is_behind = random.Below(2) == 0;
      owing.is_quiet = random.Below(2) == 0;
      GangWait first = {};
      const uint64_t owing_ns = AskGang(view, owing, &first, now_ns).wait_ns;
      CHECK(owing_ns != 0 && owing_ns <= 2 * kMs);
      GangAsker paid = owing;
      paid.wait_ns = 0;
      paid.owed_ns = 0;
      const uint64_t wait_ns = AskGang(view, paid, &wait, now_ns).wait_ns;
      if (wait_ns == 0) break;
      CHECK(wait_ns <= 2 * kMs);
      now_ns += wait_ns;
    }
    CHECK(now_ns <= kNow + kTuning.most_wait_ns + 2 * kMs);
  }
}

CoreSeat SeatOf(TimeBytes* region, const char* container, uint8_t device, uint32_t member) {
  TimeFile file;
  file.region = region;
  file.member = member;
  region->header.high_member.store(8);
  uint8_t uuid[16] = {device};
  char why[200];
  TimePlace place;
  CHECK(JoinTimeRow(file, container, uuid, {50'000, 50'000}, kNow, &place, why, sizeof why));
  CoreSeat seat;
  seat.Sit(file, place);
  return seat;
}

// The others are processes of the container on other devices, and nobody else.
void Seats() {
  auto* region = static_cast<TimeBytes*>(MapWipedOnFork(sizeof(TimeBytes)));
  const CoreSeat first = SeatOf(region, "one", 1, 0);
  CoreSeat second = SeatOf(region, "one", 2, 1);
  CoreSeat beside = SeatOf(region, "one", 1, 2);
  CHECK_EQ(first.SeeGang(0, kNow).members, 0);
  beside.TellCollectives(50, kNow);
  CHECK_EQ(first.SeeGang(0, kNow).members, 0);
  second.TellCollectives(7, kNow);
  second.Charge(kNow - 20 * kMs, kNow, kNow);
  GangView view = first.SeeGang(4, kNow);
  CHECK_EQ(view.members, 1);
  CHECK_EQ(view.lead, 3);
  CHECK_EQ(view.holding, 0);
  second.TellGangHeld(/*is_behind=*/true, /*is_quiet=*/true, kNow);
  view = first.SeeGang(4, kNow);
  CHECK_EQ(view.holding, 1);
  CHECK_EQ(view.quiet_lead, 3);
  CHECK_EQ(HeldForNs(view.due_ns, kNow), second.HeldFor(kNow));
  CHECK(second.HeldFor(kNow) > 0);
  second.TellGangGoesOn();
  CHECK_EQ(first.SeeGang(4, kNow).holding, 0);
  // Who joins anew has met nobody yet.
  SeatOf(region, "one", 2, 1);
  CHECK_EQ(first.SeeGang(0, kNow).members, 0);
}

constexpr Case kCases[] = {{"names", Names},   {"members", Members},   {"between", Between},
                           {"lead", Lead},     {"together", Together}, {"silent", Silent},
                           {"offset", Offset}, {"awaited", Awaited},   {"garbage", Garbage},
                           {"seats", Seats}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
