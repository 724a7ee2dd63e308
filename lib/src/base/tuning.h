// The numbers that the core limiter is tuned by, in one place: what each means, and what it buys or
// where it was measured. "ablation": docs/results/2026-11-23-ablation.md, in virtual time; "H200":
// docs/results/2026-11-23-h200-time.md. Must not know who reckons with them.
//
// Not here: pauses and slices of a GPU, which are measured (base/pauses.h); sizes of tables and
// layouts; units; and bounds that only hold damage or a hang off, which stand where they are used.
//
// Pure parts (pauses of intervals, waits, the clock, shares, turns) take `const Tuning&` as their
// last parameter, kTuning if it is left out, so that a test can pass others. Whoever holds state
// reads kTuning itself: a constant there costs the launch path nothing. To try another number,
// change it here; its name holds its unit, and without one it is a plain number or a part.
#pragma once

#include <stdint.h>

namespace gpufence {

struct Tuning {
  // ---- Markers: a launch and a stream ----

  // A launch takes so long while nothing better is known.
  uint64_t unknown_launch_ns = 2'500'000;
  // At least so long in a queue, until two looks agreed.
  uint64_t untrusted_launch_ns = 1'000'000;
  // The mean counts as such a part of the last interval at least.
  uint64_t mean_above_parts = 4;
  // ... and as so many times it at most; else the program does something else now.
  uint64_t mean_below_times = 16;
  // A launch takes the host 3 to 4 us, and up to 40 behind a pause (H200).
  uint64_t most_lead_ns = 10'000;
  // Taken for little, so that too much is charged; ablation: 0.9 points in a pair.
  uint64_t unknown_lead_ns = 2'000;
  // Markers behind a hold: PyTorch is ahead again after some thirty launches (H200).
  uint32_t behind_launches = 32;
  // Operations; a queue takes about 1,000, fewer where some are large (H200).
  uint32_t surely_room = 512;
  // Operations; only launches have markers then, where nothing moves.
  uint32_t nearly_full = 960;
  // A full queue of short kernels moves on in less.
  uint64_t stuck_ns = 50'000'000;
  // Launches so far apart are looked at one by one; without: 25 % becomes 10.
  uint64_t sparse_launch_ns = 100'000;
  // To shorter launches it matters by what clock their run begins.
  uint64_t brief_launch_ns = 40'000;
  // Recording takes about 1 us; more was the making of events, or the host.
  uint64_t most_record_ns = 3'000;

  // ---- Markers: when somebody looks ----

  // From one look at what runs to the next, at most.
  uint64_t longest_look_ns = 2'000'000;
  // ... where there is little to hold: each look keeps the program from the driver.
  uint64_t rare_look_ns = 8'000'000;
  // What runs so much longer than before may be something else.
  uint64_t much_longer_ns = 1'000'000;
  // What is overdue is looked at again after such a part of its time so far.
  uint64_t overdue_part = 8;
  // The GPU's clock and the host's may disagree by so much: what runs is charged short of it.
  uint64_t clock_doubt_ns = 150'000;
  // Launches between two markers, whatever the last one took.
  uint64_t most_unmarked = 1024;
  // A kernel that waits for other GPUs is charged no more: debts would multiply.
  uint64_t most_meeting_ns = 1'000'000'000;
  // ... and of such kernels so much is believed at once.
  uint64_t least_meeting_ns = 2'500'000;

  // ---- Markers: how runs begin and end ----

  // Runs closed unread for each that is read; reading all costs 4 times the calls.
  uint32_t unread_each = 7;
  // After such a pause a stream may do something else; ablation: 0.24 points.
  uint64_t long_pause_ns = 1'000'000;
  // The clocks are compared so often; without: 75 % becomes 84.
  uint64_t prompt_every_ns = 4'000'000;
  // Behind a hold: the stream may be done. With 40 us a program that launches 5 us each 30 had 1.6
  // of 8; without: 5.8 times the questions.
  uint64_t behind_ns = 20'000;
  // Of the longest launch, one such part goes with each marked run.
  uint64_t forget_parts = 1'024;
  // Shorter launches that are waited for are told by the host's clock alone.
  uint64_t host_told_launch_ns = 400'000;
  // The first runs are marked all: fewer may be chance.
  uint32_t extra_first = 4;
  // Marked runs that tell enough.
  uint32_t extra_known = 16;
  // Of what is known, one is what the next marked run tells.
  uint64_t extra_parts = 8;
  // Runs, in the mean of what one takes.
  uint64_t extra_spans = 256;
  // Unmarked runs between two that are marked, in the mean, at most.
  uint64_t extra_most_left = 2'000;

  // ---- Markers: pauses in an interval ----

  // At least such a part of an interval is charged.
  uint64_t least_busy_part = 32;
  // Launches in the mean; fewer: an eager program at 50 has 46 to 47.
  uint32_t mean_launches = 256;
  // So little off what was foretold is no surprise.
  uint64_t steady_ns = 50'000;
  // So many in a row that took what was foretold, and the next ones will.
  uint32_t steady_intervals = 8;
  // Until so many probes are known, none counts.
  uint32_t least_probes = 8;
  // Remembered, about.
  uint32_t probes = 64;
  // One marker in so many is a probe where probes find nothing; ablation: 0.4 points.
  uint32_t probes_seldom = 4;
  // Longer launches are not probed: each probe costs a marker, and they are marked one by one.
  uint64_t most_probed_launch_ns = 80'000;

  // ---- Markers: runs that are waited for, or closed by the next one ----

  // Beyond what markers saw, and this, the host was late; 0.8 with waits 60 us late.
  uint64_t surprise_ns = 20'000;
  // Runs; ablation: 0.12 points.
  uint32_t marked_after_surprise = 4;
  // Off the mean span of runs; beyond it a run is read; ablation: noise.
  uint64_t most_off_ns = 40'000;
  // In that mean.
  uint64_t mean_runs = 8;
  // Around the kernels; 5.2 to 5.5 us, 60 where waits sleep (H200); 0.8 with waits 60 us late.
  uint64_t most_extra_ns = 100'000;

  // ---- Markers: samples of one launch beside others ----

  // Longer, and others came between: two changes of hands take 280 us (H200).
  uint64_t undisturbed_ns = 250'000;
  // Of what events tell.
  uint64_t sample_doubt_ns = 20'000;
  // Fewer tell nothing.
  uint32_t least_samples = 8;
  // Are remembered, about.
  uint32_t most_samples = 128;
  // Older samples are forgotten.
  uint64_t samples_last_ns = 2'000'000'000;
  // One marker in so many is a sample once enough are known; less costs markers.
  uint32_t known_every = 2;

  // ---- The GPU's clock ----

  // 6 us a second on an H200, and 500 while NTP slews: 526 millionths.
  int64_t drift_part = 1'900;
  // Bounds are forgotten after two windows.
  uint64_t clock_window_ns = 1'000'000'000;
  // Without a prompt marker: of a window's many one was seen this soon.
  int64_t seen_soon_ns = 100'000;

  // ---- Launches: how far ahead ----

  // GPU time launched before it is paid for: a slow host gets ahead and stays there.
  uint64_t burst_work_ns = 12'000'000;
  // ... or less that costs so much: every second has its share.
  int64_t most_burst_ns = 40'000'000;
  // Who waits for each piece of work is held when it owes so much: even pauses.
  int64_t even_ns = 1'000'000;
  // Queued while others wait for the turn.
  uint64_t turn_queue_ns = 3'000'000;
  // ... where they had the GPU for long, since they want as much.
  uint64_t deep_turn_queue_ns = 10'000'000;
  // Which is for so long.
  uint64_t long_turns_ns = 15'000'000;
  // Of a turn's work left when it closes: most of what one marker stands for.
  uint64_t turn_tail_ns = 1'500'000;
  // Queued where somebody who goes first may come.
  uint64_t inferior_queue_ns = 600'000;
  // What runs so long without an end may wait for what we hold: one launch goes.
  uint64_t patience_ns = 2'000'000'000;
  // The next goes after twice the time, up to here.
  uint64_t most_patience_ns = 32'000'000'000;

  // ---- Launches: how often somebody looks ----

  // Where launches go.
  uint64_t tick_ns = 500'000;
  // The least: a look costs some 15 us of a core.
  uint64_t short_tick_ns = 50'000;
  // Others wait, and nobody knows when this work ends.
  uint64_t blind_tick_ns = 100'000;
  // Somebody goes first.
  uint64_t inferior_tick_ns = 100'000;
  // Who waits says that it still does: whoever hands over wakes it.
  uint64_t waiting_tick_ns = 2'000'000;
  // Of looking though nothing is outstanding.
  uint64_t linger_ns = 5'000'000;
  // Thousandths of a percent; looks may be rare from here (rare_look_ns) ...
  uint32_t rare_look_share = 90'000;
  // ... where launches come so fast.
  uint64_t fast_launch_ns = 10'000;
  // Of work between two markers; each is a pause of the GPU.
  uint64_t spacing_ns = 1'000'000;
  // ... while others wait.
  uint64_t turn_spacing_ns = 2'000'000;
  // ... where looks are rare.
  uint64_t rare_spacing_ns = 2'000'000;
  // ... where somebody goes first.
  uint64_t inferior_spacing_ns = 100'000;
  // ... of short runs that are waited for: a marked one costs 5 to 8 us (H200).
  uint64_t waited_spacing_ns = 1'000'000;
  // ... while most of the credit is there; without: 2.8 times the calls at 95 %.
  uint64_t careless_spacing_ns = 8'000'000;
  // Without a look for so long the watcher is stopped, and launches look.
  uint64_t watcher_late_ns = 100'000'000;
  // A held launch sleeps at a time: for its turn it is woken.
  uint64_t turn_nap_ns = 10'000'000;
  // ... without a watcher.
  uint64_t blind_nap_ns = 200'000;
  // ... while somebody goes first.
  uint64_t yield_nap_ns = 200'000;
  // ... at most.
  uint64_t longest_nap_ns = 100'000'000;
  // ... frozen: so late it may see that it may go.
  uint64_t frozen_nap_ns = 20'000'000;
  // Behind an event that was waited for a marker may keep the stream busy: 1.4 us (H200).
  uint64_t marker_tail_ns = 20'000;

  // ---- Shares ----

  // GPU time that who was idle may use at once: five points of a second.
  uint64_t credit_work_ns = 50'000'000;
  // ... or what is saved in so much of the clock, of a small share.
  uint64_t most_credit_ns = 500'000'000;
  // Thousandths of a percent; a container claims what it uses, an eighth and this.
  uint32_t claim_growth = 2'000;
  // What a soft share came to is believed.
  uint64_t soft_lasts_ns = 20'000'000;
  // Missed while others had the GPU: a neighbour's kernel of a second, for one.
  uint64_t most_waiting_credit_ns = 1'000'000'000;
  // Where no folder is shared; the driver samples some six times a second.
  uint64_t neighbour_look_ns = 200'000'000;
  // One that was seen counts: a look, and what may come in between.
  uint64_t neighbour_lasts_ns = 300'000'000;
  // Thousandths of a percent; the rest is for neighbours to be seen by.
  uint32_t most_unseen_share = 85'000;
  // Thousandths; samples and looks cover different moments.
  uint64_t neighbour_margin = 80;

  // ---- Beside others (docs/side-by-side.md) ----

  // The rate of late is a mean over the last few of these.
  uint64_t rate_ns = 20'000'000;
  // ... or what was charged since would be of so long.
  uint64_t rate_so_far_ns = 100'000'000;
  // After such a pause the rate says nothing of it.
  uint64_t most_rate_ns = 1'000'000'000;
  // Nobody compares older runs.
  uint64_t run_life_ns = 500'000'000;
  // In so short a pause the GPU was with nobody else: it had to change hands twice.
  uint64_t run_pause_ns = 250'000;
  // Whose queue is never empty has no longer pauses.
  uint64_t run_no_pause_ns = 5'000;
  // Of what events tell.
  uint64_t run_doubt_ns = 50'000;
  // When everybody told of a run: two looks of a neighbour, and one of our own.
  uint64_t told_ns = 8'000'000;
  // What is compared at once.
  uint64_t compare_ns = 2'000'000;
  // ... at most.
  uint64_t most_compared_ns = 60'000'000;
  // Who had work so lately may have some again before it is seen.
  uint64_t calm_after_ns = 5'000'000;
  // Else nobody has for so long.
  uint64_t calm_ns = 4'000'000;
  // Who had no work for so long claims nothing.
  uint64_t active_ns = 50'000'000;
  // Between two pieces of work of who goes first nobody else begins.
  uint64_t superior_pause_ns = 150'000;
  // Who may come at any moment finds short queues.
  uint64_t superior_lasts_ns = 60'000'000'000;
  // What was seen of it is believed.
  uint64_t yield_lasts_ns = 3'000'000;

  // ---- Who takes turns ----

  // At work without a pause, or held since: it would use more than it may.
  uint64_t saturates_after_ns = 100'000'000;
  // A run in the mean, beyond a slice: a deep queue.
  uint64_t deep_run_ns = 2'500'000;
  // Below it is deep no longer.
  uint64_t shallow_run_ns = 1'500'000;
  // GPU time in that mean.
  uint64_t run_mean_ns = 50'000'000;
  // One run counts as at most so long.
  uint64_t most_run_ns = 20'000'000;
  // Millionths of a run that are kernels; less leaves the GPU to others all the time.
  uint64_t dense_enough = 600'000;
  // Of runs in that mean.
  uint64_t density_mean_ns = 20'000'000;

  // ---- Turns (docs/core-limiter.md) ----

  // How long a turn lasts.
  uint64_t turn_quantum_ns = 35'000'000;
  // ... of short kernels: being ahead of the GPU again is below 1 % of it.
  uint64_t long_quantum_ns = 110'000'000;
  // Which take less in the mean.
  uint64_t short_launch_ns = 200'000;
  // The least that a turn of a busy holder lasts.
  uint64_t short_turn_ns = 5'000'000;
  // Nothing outstanding for so long ends it.
  uint64_t turn_idle_ns = 200'000;
  // A turn while somebody waits who saved much: it comes for a while only.
  uint64_t saved_quantum_ns = 15'000'000;
  // Which is this.
  int64_t much_saved_ns = 20'000'000;
  // And for so long.
  uint64_t while_ns = 300'000'000;
  // What a turn costs beside its time: there and back, 141 us each (H200).
  uint64_t turn_cost_ns = 300'000;
  // No heartbeat: stopped, or throttled.
  uint64_t member_silent_ns = 10'000'000;
  // Who is silent and foretold an end is believed that far ahead.
  uint64_t most_unseen_ns = 1'000'000'000;
  // Beyond turn_idle_ns: an idle holder hands over by itself, if it is there.
  uint64_t take_over_ns = 300'000;
  // Kept from its turns for longer, a container goes without ...
  uint64_t most_turn_wait_ns = 5'000'000'000;
  // ... for so long.
  uint64_t alone_ns = 60'000'000'000;
  // Ends a backlog; longer than a few ticks: a watcher may have been held up.
  uint64_t backlog_pause_ns = 5'000'000;
  // Kept from running by a CPU quota is no pause; no period is longer.
  uint64_t most_stall_ns = 1'000'000'000;
  // Where nobody's notice tells of the next change.
  uint64_t free_nap_ns = 200'000;
  // A notice that says the same is written again.
  uint64_t post_ns = 1'000'000;
  // Who just got the turn has so long to launch.
  uint64_t start_ns = 1'000'000;
  // A neighbour not seen for so long makes room for another one.
  uint64_t forgotten_ns = 10'000'000'000;
  // Who was at work within it wants the GPU.
  uint64_t others_window_ns = 100'000'000;

  // ---- Gangs ----

  // Behind its last collective a process takes part.
  uint64_t gang_lasts_ns = 2'000'000'000;
  // Its count is believed: a host may do something else now and then.
  uint64_t count_lasts_ns = 60'000'000'000;
  // Who holds says so again and again; a stopped process does not.
  uint64_t gang_silent_ns = 20'000'000;
  // Between two collectives nobody is held who owes less ...
  int64_t most_owed_between_ns = 200'000'000;
  // ... and has less queued.
  int64_t most_queued_between_ns = 1'000'000'000;
  // Nor who owes less while others seem to wait for it ...
  int64_t most_owed_awaited_ns = 2'000'000'000;
  // ... beside what it owed when that began.
  int64_t most_owed_before_ns = 60'000'000'000;
  // Of work queued, and nobody waits for its next launch.
  uint64_t fed_ns = 6'000'000;
  // Somebody has work left, while we have none: it waits for us.
  uint64_t gang_stall_ns = 5'000'000;
  // Beyond the own debt nobody waits longer for those of others.
  uint64_t most_gang_wait_ns = 1'000'000'000;
  // Asked again: while others wait for us.
  uint64_t gang_at_once_ns = 20'000;
  // ... while somebody may still come.
  uint64_t gang_soon_ns = 200'000;
  // ... once all are there.
  uint64_t gang_later_ns = 2'000'000;
};

inline constexpr Tuning kTuning;

}  // namespace gpufence
