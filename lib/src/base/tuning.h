// The numbers that the core limiter is tuned by, in one place: what each means, and what it buys or
// where it was measured. Of the results in docs, "ablation" and "numbers" are the pages of that
// name, in virtual time, and "H200" is the page of GPU time. Must not know who reckons with them.
//
// One number is one idea: a rule that means "lately" takes lately_ns, and small ratios of a number
// stand in the code. Not here: pauses and slices of a GPU, which are measured (base/pauses.h);
// sizes of tables and layouts; units; and bounds that only hold damage or a hang off, which stand
// where they are used.
//
// Pure parts (pauses of intervals, waits, the clock, shares, turns) take `const Tuning&` as their
// last parameter, kTuning if it is left out, so that a test can pass others. Whoever holds state
// reads kTuning itself: a constant there costs the launch path nothing. To try another number,
// change it here; its name holds its unit, and without one it is a plain number or a part.
#pragma once

#include <stdint.h>

namespace gpufence {

struct Tuning {
  // ---- Spans of time, each of one idea that many rules share ----

  // From one look to the next, at most. Who waits says so as often, and what somebody told is a
  // look old.
  uint64_t look_ns = 2'000'000;
  // ... where launches go.
  uint64_t tick_ns = 500'000;
  // ... where something ends: the least, since a look costs some 15 us of a core. Twice that where
  // nobody knows when it ends, or somebody goes first.
  uint64_t close_look_ns = 50'000;
  // ... where there is little to hold: each look keeps the program from the driver.
  uint64_t rare_look_ns = 8'000'000;
  // Who waits for what nobody wakes it for asks again.
  uint64_t soon_ns = 200'000;
  // Who waits for what it is woken for sleeps at a time.
  uint64_t nap_ns = 20'000'000;
  // Without work for so long somebody does something else; longer than a few looks, since a watcher
  // may have been held up.
  uint64_t pause_ns = 5'000'000;
  // Without a sign for so long somebody was stopped or throttled, and what it said is not believed.
  uint64_t silent_ns = 10'000'000;
  // What was so within it is so now: who was at work wants the GPU, who was held wants more.
  uint64_t lately_ns = 100'000'000;
  // Means of what a container does are over so much; one run counts as no more.
  uint64_t mean_over_ns = 20'000'000;
  // What others may cost: nobody waits longer for them, or is believed or charged for longer.
  uint64_t most_wait_ns = 1'000'000'000;
  // What happens seldom is remembered: a priority at work, collectives, a neighbour that cheats.
  uint64_t remembered_ns = 60'000'000'000;

  // ---- Enough to know ----

  // Samples, runs or intervals that tell what the next ones will be.
  uint32_t enough = 8;
  // Launches or runs in a mean that shall not follow single ones; fewer: an eager program at 50 has
  // 46 to 47.
  uint32_t many = 256;
  // What events tell, and what hosts make of it, may be off by so much: less is no surprise.
  uint64_t doubt_ns = 50'000;

  // ---- Markers (docs/core-limiter-details.md) ----

  // A launch takes so long while nothing better is known.
  uint64_t unknown_launch_ns = 2'500'000;
  // To shorter launches it matters by what clock their run begins; looks may be rare where they
  // fill the GPU.
  uint64_t brief_launch_ns = 40'000;
  // Shorter launches that are waited for are told by the host's clock alone.
  uint64_t host_told_launch_ns = 400'000;
  // Launches so far apart are looked at one by one; without: 25 % becomes 10.
  uint64_t sparse_launch_ns = 100'000;
  // A launch takes the host 3 to 4 us, and up to 40 behind a pause (H200).
  uint64_t most_lead_ns = 10'000;
  // Recording takes about 1 us, reading clocks less; more was the making of events, or the host.
  uint64_t most_record_ns = 3'000;
  // Operations that nearly fill a queue (H200), and launches between two markers at most. What is
  // put there for others needs half of it free.
  uint64_t full_queue = 960;
  // Markers behind a hold: PyTorch is ahead again after some thirty launches (H200).
  uint32_t behind_launches = 32;
  // Behind a hold: the stream may be done. With 40 us a program that launches 5 us each 30 had 1.6
  // of 8; without: 5.8 times the questions.
  uint64_t behind_ns = 20'000;
  // Until so many probes are known, none counts.
  uint32_t least_probes = 8;
  // Remembered, about.
  uint32_t probes = 64;
  // One marker in so many is a probe where probes find nothing; ablation: 0.4 points.
  uint32_t probes_seldom = 4;
  // Longer launches, in the mean, are probed until half of these are known: another marker for each
  // would be many, since they are marked nearly one by one.
  uint64_t long_launch_ns = 80'000;
  // Intervals that are probed behind one in which the GPU may have waited. With none a recorded
  // training (PEFT) had 27.4 at 25 in virtual time; with these 25.5.
  uint32_t probed_behind = 16;
  // The GPU's clock and the host's may disagree by so much: what runs is charged short of it.
  uint64_t clock_doubt_ns = 150'000;
  // The GPU's clock and an unslewed one of the host's part by at most so much, as crystals do: by 7
  // us a second on an H200. With 526 millionths, as for a slewed clock, 64 kernels of 3 us that are
  // as fast as their host had 28.3 at 25 in virtual time; with these 71 they have 26.4.
  int64_t drift_part = 14'000;
  // Bounds of the GPU's clock are forgotten after two windows.
  uint64_t clock_window_ns = 1'000'000'000;

  // ---- Launches ----

  // Of work between two markers; each is a pause of the GPU, or 5 to 8 us of a run that is waited
  // for (H200). Twice as much while others wait, and where looks are rare.
  uint64_t spacing_ns = 1'000'000;
  // GPU time launched before it is paid for: a slow host gets ahead and stays there.
  uint64_t burst_work_ns = 12'000'000;
  // ... or less that costs so much: every second has its share.
  int64_t most_burst_ns = 40'000'000;
  // Who waits for each piece of work is held when it owes so much: even pauses.
  int64_t even_ns = 1'000'000;
  // Queued while others wait for the turn.
  uint64_t turn_queue_ns = 3'000'000;
  // ... where they had the GPU for long (short_quantum_ns), since they want as much.
  uint64_t deep_turn_queue_ns = 10'000'000;
  // Queued where somebody who goes first may come, and between two places where a longer queue can
  // stop; such a place takes the GPU 3 us (H200).
  uint64_t inferior_queue_ns = 300'000;
  // What runs so long without an end may wait for what we hold: one launch goes, and the next ones
  // after twice the time each, up to 16 times.
  uint64_t patience_ns = 2'000'000'000;
  // Thousandths of a percent; looks may be rare from here (rare_look_ns).
  uint32_t rare_look_share = 90'000;

  // ---- Shares ----

  // GPU time that who was idle may use at once: five points of a second.
  uint64_t credit_work_ns = 50'000'000;
  // ... or what is saved in so much of the clock, of a small share.
  uint64_t most_credit_ns = 500'000'000;
  // Thousandths of a percent; a container claims what it uses, an eighth and this.
  uint32_t claim_growth = 2'000;
  // Where no folder is shared; the driver samples some six times a second.
  uint64_t neighbour_look_ns = 200'000'000;
  // Thousandths of a percent; the rest is for neighbours to be seen by.
  uint32_t most_unseen_share = 85'000;
  // Thousandths; samples and looks cover different moments.
  uint64_t neighbour_margin = 80;

  // ---- Beside others, and turns (docs/side-by-side.md, docs/core-limiter.md) ----

  // Whose queue is never empty has no longer pauses.
  uint64_t run_no_pause_ns = 5'000;
  // Millionths of a run that are kernels; less leaves the GPU to others all the time.
  uint64_t dense_enough = 600'000;
  // How long a turn lasts.
  uint64_t turn_quantum_ns = 35'000'000;
  // ... of short kernels: being ahead of the GPU again is below 1 % of it.
  uint64_t long_quantum_ns = 110'000'000;
  // Which take less in the mean.
  uint64_t short_launch_ns = 200'000;
  // ... while somebody waits who saved more than this: it comes for a while only.
  uint64_t short_quantum_ns = 15'000'000;
  // The least that a turn of a busy holder lasts.
  uint64_t short_turn_ns = 5'000'000;
  // Nothing outstanding for so long ends it; after twice that others need not ask the holder.
  uint64_t turn_idle_ns = 200'000;
  // So long before long kernels are expected to end, at most, their turn is passed on: until the
  // next container is awake and has launched. Four containers of kernels of 25 ms: 99.1 % of one
  // process instead of 98.8 (H200).
  uint64_t hand_over_ns = 200'000;
  // Kept from its turns for longer, a container goes without (remembered_ns).
  uint64_t most_turn_wait_ns = 5'000'000'000;

  // ---- Gangs ----

  // Behind its last collective a process takes part, and owes no more where others wait for it.
  uint64_t gang_lasts_ns = 2'000'000'000;
  // Between two collectives nobody is held who owes less.
  int64_t most_owed_between_ns = 200'000'000;
  // Asked again while others wait for us; with 100 us 2,000 collectives of one rank alone cost the
  // other a fifth (numbers).
  uint64_t gang_at_once_ns = 20'000;
};

inline constexpr Tuning kTuning;

// So long ago all have told of when their work had the GPU: their looks and ours lie between.
inline constexpr uint64_t kToldNs = 4 * kTuning.look_ns;

}  // namespace gpufence
