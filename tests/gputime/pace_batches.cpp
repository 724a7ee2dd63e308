// link: state
// What batches of a measurement agree on. Fails with the place that was not true.
//
//   pace_batches NAME
#include <initializer_list>

#include "device/paces.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint32_t kNothing = 77;

constexpr size_t kLeast = 5;

uint32_t Agreed(std::initializer_list<int64_t> means_ns, size_t least = kLeast) {
  Batches batches;
  for (const int64_t mean_ns : means_ns) batches.Add(mean_ns);
  uint32_t agreed_ns = kNothing;
  if (!batches.Agree(least, &agreed_ns)) CHECK_EQ(agreed_ns, kNothing);
  return agreed_ns;
}

void Mean() {
  CHECK_EQ(Agreed({1'400, 1'300, 1'500, 1'450, 1'350, 1'400, 1'380, 1'420}), 1'400);
  CHECK_EQ(Agreed({0, 0, 0, 0, 0}), 0);
  CHECK_EQ(Agreed({-40, -40, -40, -40, -40}), 0);
}

// Somebody else's slices, wherever they fall; nothing is shorter than it should be but by chance.
void Disturbed() {
  CHECK_EQ(Agreed({2'000'000, 1'400, 1'400, 300'000, 1'400, 1'400, 90'000, 1'400}), 1'400);
  CHECK_EQ(Agreed({1'400, 1'400, 1'400, 1'400, 1'400, 1'400, 1'400, 100}), 1'400);
}

void TooFew() {
  CHECK_EQ(Agreed({}), kNothing);
  CHECK_EQ(Agreed({1'400, 1'400, 1'400, 1'400}), kNothing);
  CHECK_EQ(Agreed({1'400, 1'400, 1'400, 1'400, 9'000, 9'000, 9'000, 9'000}), kNothing);
  CHECK_EQ(Agreed({1'000, 2'000, 3'000, 4'000, 5'000, 6'000, 7'000, 8'000}), kNothing);
}

// A clock of microseconds rounds what is shorter than a step of it.
void Rounded() { CHECK_EQ(Agreed({600, 900, 700, 800, 700, 800, 750, 750}), 750); }

// Where few are to be had, fewer must agree.
void Least() {
  CHECK_EQ(Agreed({1'300, 1'400, 1'500}, 3), 1'400);
  CHECK_EQ(Agreed({1'400, 1'400, 4'000'000}, 3), kNothing);
}

// A host that is late for most of them.
void Late() {
  Batches batches;
  uint32_t agreed_ns = 0;
  for (int64_t i = 0; i < 16; ++i) batches.Add(i % 3 == 0 ? 1'400 : 40'000 + i * 3'000);
  CHECK(batches.Agree(kLeast, &agreed_ns));
  CHECK_EQ(agreed_ns, 1'400);
}

void Enough() {
  Batches batches;
  for (size_t i = 0; i < Batches::kEnough; ++i) {
    CHECK(!batches.HasEnough());
    batches.Add(1'400);
  }
  CHECK(batches.HasEnough());
}

// There is room for so many.
void First() {
  Batches batches;
  uint32_t agreed_ns = 0;
  for (size_t i = 0; i < 2 * Batches::kMost; ++i) batches.Add(i < Batches::kMost ? 1'400 : 1'500);
  CHECK(batches.Agree(kLeast, &agreed_ns));
  CHECK_EQ(agreed_ns, 1'400);
}

constexpr Case kCases[] = {{"mean", Mean},       {"disturbed", Disturbed}, {"too_few", TooFew},
                           {"rounded", Rounded}, {"least", Least},         {"late", Late},
                           {"enough", Enough},   {"first", First}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
