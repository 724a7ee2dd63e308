// link: state
// Who does not run for a while in the middle of its work keeps its claim to the GPU; who pauses
// does not. The threads of a container on a crowded machine are such, and a CPU quota makes them.
//
//   core_stalls CASE
#include "base/tuning.h"
#include "core_world.h"
#include "policy/turn.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kBehindNs = 3 * kSecond;  // that it was served less than the others
constexpr uint64_t kPauseNs = 20 * kMs;
constexpr uint64_t kStallNs = 900 * kMs;
constexpr uint64_t kLongStallNs = 1'100 * kMs;

// A container that is owed something, and the time at which it was seen last.
class Claimant {
 public:
  Claimant() : world_(1) {
    world_.AddTenant(50);
    world_.AddProcess(0, {.kernel_ns = kMs});
    now_ns_ = world_.now_ns();
  }

  CoreSeat& seat() { return world_.process(0).seat; }
  uint64_t now_ns() const { return now_ns_; }
  void Pass(uint64_t ns) { now_ns_ += ns; }

  // Its queues are deep: it takes turns.
  void Deepen() {
    TimeRow& row = world_.region(0)->rows[0];
    row.run_ns.store(kTuning.mean_over_ns);
    row.density.store(kWholeDensity);
    seat().MoveTurn(now_ns_);
    CHECK(seat().TakesTurns());
  }

  // The others were served so much more meanwhile.
  void FallBehind() {
    TimeBytes* region = world_.region(0);
    region->rows[0].virtual_ns.store(ServedNs() + kBehindNs);
    claim_ns_ = ServedNs();
    backlog_ns_ = BacklogNs();
  }
  bool KeepsItsClaim() { return ServedNs() == claim_ns_ && BacklogNs() == backlog_ns_; }
  bool BeginsAnew() { return ServedNs() > claim_ns_ && BacklogNs() == now_ns_; }

 private:
  CoreTenant& tenant() { return world_.region(0)->tenants[0][kOwnTenant]; }
  uint64_t ServedNs() { return tenant().served_ns.load(); }
  uint64_t BacklogNs() { return tenant().backlog_ns.load(); }

  World world_;
  uint64_t now_ns_ = 0;
  uint64_t claim_ns_ = 0;
  uint64_t backlog_ns_ = 0;
};

// Its kernels run, or are said to: it launches again after a stall.
void Launching() {
  Claimant one;
  one.seat().Beat(one.now_ns(), true);
  one.FallBehind();
  one.Pass(kStallNs);
  one.seat().Beat(one.now_ns(), true);
  CHECK(one.KeepsItsClaim());

  one.Pass(kLongStallNs);
  one.seat().Beat(one.now_ns(), true);
  CHECK(one.BeginsAnew());
}

// It waits for its turn, and asks again after a stall.
void Waiting() {
  Claimant one;
  one.seat().Beat(one.now_ns(), true);
  one.Pass(kMs);
  one.seat().Beat(one.now_ns(), false);
  one.Pass(kMs);
  one.Deepen();
  one.seat().WantTurn(one.now_ns());
  one.FallBehind();
  one.Pass(kStallNs);
  one.seat().WantTurn(one.now_ns());
  CHECK(one.KeepsItsClaim());

  one.Pass(kLongStallNs);
  one.seat().WantTurn(one.now_ns());
  CHECK(one.BeginsAnew());
}

// Nothing of it was outstanding or wanted: then even a short pause is one.
void Pausing() {
  Claimant one;
  one.seat().Beat(one.now_ns(), true);
  one.Pass(kMs);
  one.seat().Beat(one.now_ns(), false);
  one.FallBehind();
  one.Pass(kMs);
  one.seat().WantTurn(one.now_ns());
  CHECK(one.KeepsItsClaim());

  one.seat().Beat(one.now_ns(), true);
  one.seat().Beat(one.now_ns(), false);
  one.Pass(kPauseNs);
  one.seat().WantTurn(one.now_ns());
  CHECK(one.BeginsAnew());
}

constexpr Case kCases[] = {{"launching", Launching}, {"waiting", Waiting}, {"pausing", Pausing}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
