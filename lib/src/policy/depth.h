// Who takes turns (docs/side-by-side.md): containers whose queues are deep. Two of them would cost
// the GPU a fourteenth of its time in changes of hands if the driver alternated between them;
// everybody else lets it, and waits for nobody. Pure; time is a parameter.
#pragma once

#include <stdint.h>

namespace gpufence {

// Whoever had or wanted the GPU for so long without a pause, or was held for its budget lately,
// would use more than it may.
inline constexpr uint64_t kSaturatesAfterNs = 100'000'000;
// So long it has the GPU in the mean before it waits, or lets others in: beyond a slice.
inline constexpr uint64_t kDeepRunNs = 2'500'000;
// Below that it is deep no longer.
inline constexpr uint64_t kShallowRunNs = 1'500'000;
// The mean is over about so much GPU time, and one run counts as at most so long.
inline constexpr uint64_t kRunMeanNs = 50'000'000;
inline constexpr uint64_t kMostRunNs = 20'000'000;

// Of a run so much must be kernels, in millionths: a program that launches slower than the GPU
// works leaves it to others all the time.
inline constexpr uint64_t kWholeDensity = 1'000'000;
inline constexpr uint64_t kDenseEnough = 600'000;
// The mean is over about so much of it.
inline constexpr uint64_t kDensityMeanNs = 20'000'000;

struct Depth {
  bool was_deep;
  uint64_t density;     // of its runs so much is kernels, in millionths
  uint64_t run_ns;      // MeanRunNs
  uint64_t backlog_ns;  // since when it wants or uses the GPU without a pause; 0: it does not
  uint64_t pressed_ns;  // when a launch was last held for budget; 0: never
};

bool IsDeep(const Depth& depth, uint64_t now_ns);

// The mean length of runs after `busy_ns` more in one that takes `run_ns` so far.
uint64_t MeanRunNs(uint64_t mean_ns, uint64_t run_ns, uint64_t busy_ns);

// The mean density after `ran_ns` more of which `busy_ns` were kernels.
uint64_t MeanDensity(uint64_t mean, uint64_t busy_ns, uint64_t ran_ns);

}  // namespace gpufence
