// link: state
// Who has no work of its own for a while takes no turns for a tenth of a second, however deep its
// queue is; nor does who waits for each short piece of it.
//
//   core_rests CASE
#include "base/tuning.h"
#include "core_world.h"
#include "policy/turn.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kRest = kTuning.turn_idle_ns;

// A container of two processes, of which the first works, and the time at which it was seen last.
class Container {
 public:
  Container() : world_(1) {
    world_.AddTenant(50);
    for (int i = 0; i < 2; ++i) world_.AddProcess(0, {.kernel_ns = kMs});
    now_ns_ = world_.now_ns() + kSecond;
    // Long ago: the first launch of all comes behind a rest.
    seat().NoteArrival(now_ns_ - kSecond, /*waited=*/false);
    Work();
    CHECK(seat().TakesTurns());
  }

  CoreSeat& seat() { return world_.process(0).seat; }
  CoreSeat& sibling() { return world_.process(1).seat; }
  uint64_t now_ns() const { return now_ns_; }
  void Pass(uint64_t ns) { now_ns_ += ns; }
  void Charge(uint64_t ns) { CHECK_EQ(seat().Charge(now_ns_ - ns, now_ns_, now_ns_), ns); }

  // As its runs are long and dense, nothing but rests keeps it from turns.
  void Work() {
    TimeRow& row = world_.region(0)->rows[0];
    row.run_ns.store(kTuning.mean_over_ns);
    row.density.store(kWholeDensity);
    seat().Beat(now_ns_, true);
    seat().MoveTurn(now_ns_);
  }

  // It has worked until now, waits for all of it, and launches again after so long.
  bool TakesTurnsAfter(uint64_t idle_ns) {
    Work();
    seat().NoteWait(now_ns_);
    return Arrives(idle_ns, /*waited=*/true);
  }
  // ... and does not wait, or launched since it did: only looks say that it has nothing left.
  bool TakesTurnsAfterLook(uint64_t idle_ns) { return Arrives(idle_ns, /*waited=*/false); }
  // It has waited for so many pieces of a fifth of a millisecond, one after the other.
  bool TakesTurnsBehindPieces(int count) {
    for (int i = 0; i < count; ++i) {
      Pass(kMs / 5);
      Charge(kMs / 5);
      seat().NoteWait(now_ns_);
    }
    seat().Beat(now_ns_, true);
    seat().MoveTurn(now_ns_);
    return seat().TakesTurns();
  }

 private:
  bool Arrives(uint64_t idle_ns, bool waited) {
    Pass(idle_ns);
    seat().NoteArrival(now_ns_, waited);
    Work();
    return seat().TakesTurns();
  }

  World world_;
  uint64_t now_ns_ = 0;
};

void Waited() {
  Container one;
  CHECK(one.TakesTurnsAfter(kRest - 1));
  CHECK(!one.TakesTurnsAfter(kRest));
  one.Pass(kTuning.lately_ns - 1);
  CHECK(!one.TakesTurnsAfter(0));
  one.Pass(1);
  CHECK(one.TakesTurnsAfter(0));
}

void Seen() {
  Container one;
  CHECK(one.TakesTurnsAfterLook(kMs));
  one.seat().NoteWait(one.now_ns());
  CHECK(one.TakesTurnsAfterLook(kMs));
  one.seat().Beat(one.now_ns(), false);
  CHECK(one.TakesTurnsAfterLook(kRest - 1));
  one.seat().Beat(one.now_ns(), false);
  CHECK(!one.TakesTurnsAfterLook(kRest));
}

// Behind much work a short pause is none: of 80 ms, in the mean, 4 ms.
void Behind() {
  Container one;
  for (int i = 0; i < 40; ++i) {
    one.Pass(80 * kMs);
    one.Charge(80 * kMs);
    CHECK(one.TakesTurnsAfter(0));
  }
  one.Pass(80 * kMs);
  one.Charge(80 * kMs);
  CHECK(one.TakesTurnsAfter(39 * kMs / 10));
  one.Pass(80 * kMs);
  one.Charge(80 * kMs);
  CHECK(!one.TakesTurnsAfter(41 * kMs / 10));
}

// A launch that is held is work, in another process of the container as well. One that died
// meanwhile is forgotten.
void Held() {
  Container one;
  one.seat().BeginHold();
  CHECK(one.TakesTurnsAfter(kMs));
  one.seat().EndHold();
  one.sibling().Beat(one.now_ns(), false);
  one.sibling().BeginHold();
  CHECK(one.TakesTurnsAfter(kMs));
  one.Pass(kTuning.lately_ns);
  CHECK(!one.TakesTurnsAfter(kMs));
}

// Nor does a container rest while another one of its processes has work.
void Beside() {
  Container one;
  one.sibling().Beat(one.now_ns(), true);
  CHECK(one.TakesTurnsAfter(kMs));
  one.sibling().Beat(one.now_ns(), false);
  CHECK(one.TakesTurnsAfter(kRest - 1));
  CHECK(!one.TakesTurnsAfter(kRest));
}

void Pieces() {
  Container one;
  CHECK(one.TakesTurnsBehindPieces(2));
  CHECK(!one.TakesTurnsBehindPieces(10));
  CHECK(one.TakesTurnsAfter(0));
}

// While another process of the container has work, pieces of this one say nothing about it.
void PiecesBeside() {
  Container one;
  one.sibling().Beat(one.now_ns(), true);
  CHECK(one.TakesTurnsBehindPieces(20));
}

constexpr Case kCases[] = {{"waited", Waited},
                           {"seen", Seen},
                           {"behind", Behind},
                           {"held", Held},
                           {"beside", Beside},
                           {"pieces", Pieces},
                           {"pieces_beside", PiecesBeside}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
