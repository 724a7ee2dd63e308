// A call in two forms, timed in short blocks that take turns, so that clock changes and neighbours
// hit both. A block is the median of its calls: one of 50 us lasts twice as long now and then, and
// a mean would drown the nanoseconds looked for. What one form costs beyond the other is the median
// over the rounds, with the bounds that hold it 95 times in 100: a difference that drowns in noise
// shows wide bounds, not a figure. The same of the part outside the driver: our own code.
// Owns the clock's side of a benchmark; must not know what is called.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "driver_time.h"
#include "measure.h"

namespace bench {

struct Spread {
  double median;
  double low;
  double high;
};

// The bounds are order statistics: no distribution is assumed.
inline Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const double below = std::max(0.0, std::floor(count / 2 - 0.98 * std::sqrt(count)));
  const auto edge = static_cast<size_t>(below);
  return {values[values.size() / 2], values[edge], values[values.size() - 1 - edge]};
}

// When a measurement ends: at this precision, at the latest after so many seconds.
struct Effort {
  double seconds;
  double bound_ns = 4;
};

// Collects rounds and says when there are enough.
class Rounds {
 public:
  explicit Rounds(Effort effort) : effort_(effort), until_ns_(NowNs() + effort.seconds * 1e9) {}

  void Add(const double ns[2]) {
    for (int which = 0; which < 2; ++which) times_[which].push_back(ns[which]);
    extra_.push_back(ns[1] - ns[0]);
  }

  // What of a round was not the driver's.
  void AddHooks(const double ns[2]) { hooks_.push_back(ns[1] - ns[0]); }

  bool AreEnough() const {
    if (extra_.size() < kLeast || extra_.size() % kLeast != 0) return false;
    if (NowNs() > until_ns_) return true;
    const Spread extra = SpreadOf(extra_);
    return extra.high - extra.low <= 2 * effort_.bound_ns;
  }

  // One member of a JSON object.
  void Print(const char* name) const {
    static const char* separator = "";
    const double direct = Median(times_[0]), ours = Median(times_[1]);
    std::printf("%s\n  \"%s\": {\"rounds\": %zu, ", separator, name, extra_.size());
    std::printf("\"direct_median_ns\": %.2f, \"ours_median_ns\": %.2f, ", direct, ours);
    PrintSpread("extra", extra_);
    if (!hooks_.empty()) PrintSpread("hooks", hooks_);
    std::printf("\"ratio\": %.4f}", ours / direct);
    std::fflush(stdout);
    separator = ",";
  }

 private:
  static constexpr size_t kLeast = 16;

  static void PrintSpread(const char* what, const std::vector<double>& values) {
    const Spread spread = SpreadOf(values);
    std::printf("\"%s_median_ns\": %.2f, \"%s_low_ns\": %.2f, \"%s_high_ns\": %.2f, ", what,
                spread.median, what, spread.low, what, spread.high);
  }

  Effort effort_;
  double until_ns_;
  std::vector<double> times_[2];
  std::vector<double> extra_;
  std::vector<double> hooks_;
};

// Calls of one form, one after the other: their median, and that of their time outside the driver.
struct Block {
  double whole_ns;
  double hooks_ns;
};

// The first few are not counted: they follow the other form's.
template <typename Call>
Block TimeBlock(int calls, Call call) {
  constexpr int kFirst = 2;
  static const double ns_per_tick = NsPerTick();
  std::vector<double> whole, hooks;
  for (int i = -kFirst; i < calls; ++i) {
    driver_ticks = 0;
    const uint64_t start = Ticks();
    call();
    const uint64_t ticks = Ticks() - start;
    if (i < 0) continue;
    whole.push_back(static_cast<double>(ticks));
    hooks.push_back(static_cast<double>(ticks - driver_ticks));
  }
  return {Median(std::move(whole)) * ns_per_tick, Median(std::move(hooks)) * ns_per_tick};
}

// Times call(which) for both forms in blocks of `calls`: the driver's, ours, ours, the driver's,
// and so on. settle() runs untimed after each block.
template <typename Call, typename Settle>
void Measure(const char* name, Effort effort, int calls, Call call, Settle settle) {
  Rounds rounds(effort);
  for (int round = -4; !rounds.AreEnough(); ++round) {
    double whole_ns[2] = {}, hooks_ns[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round + 4) % 2;
      const Block block = TimeBlock(calls, [&] { call(which); });
      whole_ns[which] = block.whole_ns;
      hooks_ns[which] = block.hooks_ns;
      settle();
    }
    if (round < 0) continue;  // these fill caches
    rounds.Add(whole_ns);
    rounds.AddHooks(hooks_ns);
  }
  rounds.Print(name);
}

// The same by several threads at once: call(which, thread). All of them are in the same form at a
// time; a block lasts until the last has made its calls. begin(thread) runs first in each.
template <typename Begin, typename Call>
void MeasureThreads(const char* name, Effort effort, int calls, int threads, Begin begin,
                    Call call) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(threads));
  Rounds rounds(effort);
  bool is_over = false;  // written by the first between barriers
  const auto run = [&](int thread) {
    begin(thread);
    for (int round = -4;; ++round) {
      double ns[2] = {};
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (turn + round + 4) % 2;
        pthread_barrier_wait(&barrier);
        const double start = NowNs();
        for (int i = 0; i < calls; ++i) call(which, thread);
        pthread_barrier_wait(&barrier);
        ns[which] = (NowNs() - start) / calls;
      }
      if (thread == 0 && round >= 0) rounds.Add(ns);
      if (thread == 0) is_over = rounds.AreEnough();
      pthread_barrier_wait(&barrier);
      if (is_over) return;
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  pthread_barrier_destroy(&barrier);
  rounds.Print(name);
}

}  // namespace bench
