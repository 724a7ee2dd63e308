// When work stood at yield points, as whoever charges it asks. Fails with the place that was not
// true.
//
//   stood_times NAME
// link: state
#include "device/stood_times.h"

#include <utility>
#include <vector>

#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

using Parts = std::vector<std::pair<uint64_t, uint64_t>>;

StoodTimes stood;

Parts Outside(uint64_t begin_ns, uint64_t end_ns) {
  Parts parts;
  stood.ForEachOutside(begin_ns, end_ns, [&](uint64_t from_ns, uint64_t to_ns) {
    parts.emplace_back(from_ns, to_ns);
  });
  return parts;
}

// What never stood ran all the time.
void Never() {
  CHECK_EQ(stood.WithinNs(0, UINT64_MAX), 0u);
  CHECK(Outside(10, 20) == (Parts{{10, 20}}));
  CHECK(Outside(20, 20).empty());
}

// A stretch is cut where it stood, at either end and in the middle.
void Cut() {
  stood.Begin(100);
  stood.End(200);
  stood.Begin(300);
  stood.End(350);
  CHECK(Outside(50, 400) == (Parts{{50, 100}, {200, 300}, {350, 400}}));
  CHECK_EQ(stood.WithinNs(50, 400), 150u);
  CHECK(Outside(150, 320) == (Parts{{200, 300}}));
  CHECK_EQ(stood.WithinNs(150, 320), 70u);
  CHECK(Outside(120, 180).empty());
  CHECK_EQ(stood.WithinNs(120, 180), 60u);
  CHECK(Outside(210, 290) == (Parts{{210, 290}}));
  CHECK_EQ(stood.WithinNs(290, 210), 0u);
}

// It stands until somebody says that it goes on. Saying either again changes nothing.
void Open() {
  stood.End(50);
  CHECK_EQ(stood.WithinNs(0, 1000), 0u);
  CHECK(!stood.Stands());
  stood.Begin(100);
  CHECK(stood.Stands());
  stood.Begin(150);
  CHECK_EQ(stood.WithinNs(0, 1000), 900u);
  CHECK(Outside(0, 1000) == (Parts{{0, 100}}));
  stood.End(200);
  stood.End(400);
  CHECK(!stood.Stands());
  CHECK_EQ(stood.WithinNs(0, 1000), 100u);
}

// What is forgotten counts as time in which it ran.
void Forgotten() {
  for (uint64_t i = 1; i <= 40; ++i) {
    stood.Begin(100 * i);
    stood.End(100 * i + 10);
  }
  CHECK_EQ(stood.WithinNs(100, 200), 0u);
  CHECK_EQ(stood.WithinNs(4'000, 4'100), 10u);
  CHECK_EQ(stood.WithinNs(0, 5'000), 150u);
}

constexpr Case kCases[] = {
    {"never", Never}, {"cut", Cut}, {"open", Open}, {"forgotten", Forgotten}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
