// link: state
// Who gets how much of a GPU, in virtual time; fails with the figure that was not as promised.
//
//   core_turns NAME SEED
#include <string.h>

#include "core_world.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

uint64_t seed = 1;

void Expect(const World& world, uint32_t tenant, double percent, double tolerance = 1.0) {
  const double got = world.Percent(tenant);
  if (got >= percent - tolerance && got <= percent + tolerance) return;
  fprintf(stderr, "tenant %u has %.2f %% instead of %.2f (sum %.2f)\n", tenant, got, percent,
          world.Sum());
  _exit(9);
}

void ExpectSum(const World& world, double least) {
  if (world.Sum() >= least) return;
  fprintf(stderr, "the sum is %.2f %%, less than %.2f\n", world.Sum(), least);
  _exit(9);
}

void ExpectAtMost(uint64_t ns, uint64_t most_ns, const char* what) {
  if (ns <= most_ns) return;
  fprintf(stderr, "%s: %.3f ms, more than %.3f\n", what, static_cast<double>(ns) / 1e6,
          static_cast<double>(most_ns) / 1e6);
  _exit(9);
}

// Saturating containers, shares that make a whole, kernels of every length side by side.
void Saturating() {
  static const std::vector<std::vector<uint32_t>> kShares = {
      {30, 70}, {50, 50}, {25, 25, 25, 25}, {10, 90}, {5, 15, 80}};
  static const std::vector<std::vector<uint64_t>> kKernels = {
      {50 * kUs}, {500 * kUs}, {5 * kMs}, {500 * kUs, 5 * kMs}, {100 * kUs, 30 * kMs}};
  for (const auto& shares : kShares) {
    for (const auto& kernels : kKernels) {
      for (uint32_t members : {1, 3}) {
        World world(seed);
        for (size_t i = 0; i < shares.size(); ++i) {
          const uint32_t tenant = world.AddTenant(shares[i]);
          for (uint32_t member = 0; member < members; ++member) {
            world.AddProcess(tenant, {.kernel_ns = kernels[i % kernels.size()]});
          }
        }
        world.RunFor(kSecond);
        world.Reset();
        world.RunFor(5 * kSecond);
        printf("%zu x %u, %g us:", shares.size(), members,
               static_cast<double>(kernels.back()) / 1e3);
        for (uint32_t i = 0; i < shares.size(); ++i) printf(" %.2f", world.Percent(i));
        printf(" sum %.2f wait %.1f ms\n", world.Sum(), static_cast<double>(world.longest_wait_ns()) / 1e6);
      }
    }
  }
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case kCases[] = {{"saturating", Saturating}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  seed = strtoull(argv[2], nullptr, 10);
  for (const Case& each : kCases) {
    if (strcmp(each.name, argv[1]) != 0) continue;
    each.run();
    printf("ok\n");
    return 0;
  }
  return 2;
}
