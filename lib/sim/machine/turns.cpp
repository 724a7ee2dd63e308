// See turns.h.
#include "machine/turns.h"

#include <errno.h>
#include <string.h>

namespace sim {
namespace {

// A process that is asked to look when so many turns are kept for it does so in time.
constexpr uint32_t kManyTurns = kKeptTurns / 2;

uint64_t Later(uint64_t left_ns, uint64_t right_ns) {
  return left_ns > right_ns ? left_ns : right_ns;
}

uint64_t Sooner(uint64_t left_ns, uint64_t right_ns) {
  return left_ns < right_ns ? left_ns : right_ns;
}

uint64_t Plus(uint64_t at_ns, uint64_t ns) { return ns > kNever - at_ns ? kNever : at_ns + ns; }

// A process that has run dry leaves no kernels that must be interrupted and kept: 140 us where a
// switch at the end of a slice takes 155 (H200).
uint64_t SwitchNs(const DeviceTimeline& engine, bool is_dry) {
  return is_dry ? engine.switch_ns - engine.switch_ns / 10 : engine.switch_ns;
}

// The engine of one process's call, locked.
class Round {
 public:
  explicit Round(const TurnTaker& taker) : taker_(taker), engine_(*taker.engine) {
    if (pthread_mutex_lock(&engine_.mutex) == EOWNERDEAD) StartAnew();
  }
  ~Round() { pthread_mutex_unlock(&engine_.mutex); }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  // Decides everything up to `until_ns`, which lies in the past of every process or is its present.
  void Settle(uint64_t until_ns);

  void Ask(const TurnWish& wish);
  bool Leave(uint64_t at_ns);
  bool IsFree(uint64_t at_ns) const;
  void Answer(TurnAnswer* answer) const;
  void Vacate();

 private:
  TurnSeat& own() const { return engine_.seats[taker_.seat]; }
  bool holds() const { return engine_.holder == taker_.seat; }

  void StartAnew();
  int NextSeat(uint64_t after_ticket) const;
  int NextSeat() const { return NextSeat(0); }
  void Join(uint64_t at_ns, uint64_t busy_ns);
  void Give(int seat, uint64_t free_ns, uint64_t switch_ns);
  void TakeAway(uint64_t at_ns, bool is_dry);
  void Evict(int seat);
  void WakeOthers() const;
  uint64_t OwnTimeSince(uint64_t from_ns) const;
  uint64_t ForecastNs() const;

  const TurnTaker& taker_;
  DeviceTimeline& engine_;
};

void Round::StartAnew() {
  for (int i = 0; i < engine_.seat_limit; ++i) {
    engine_.seats[i].is_in = 0;
    engine_.seats[i].turn_count = 0;
  }
  engine_.holder = kNoSeat;
  engine_.free_ns = engine_.settled_ns;
  pthread_mutex_consistent(&engine_.mutex);
  WakeOthers();
}

// Who waits longest among those with a later ticket and room for one more turn.
int Round::NextSeat(uint64_t after_ticket) const {
  int next = kNoSeat;
  for (int i = 0; i < engine_.seat_limit; ++i) {
    const TurnSeat& seat = engine_.seats[i];
    if (seat.is_in == 0 || i == engine_.holder || seat.turn_count == kKeptTurns) continue;
    if (seat.ticket <= after_ticket) continue;
    if (next == kNoSeat || seat.ticket < engine_.seats[next].ticket) next = i;
  }
  return next;
}

// A switch is paid for where one process has to make way for the next, not on an idle engine.
void Round::Give(int next, uint64_t free_ns, uint64_t switch_ns) {
  TurnSeat& seat = engine_.seats[next];
  const bool is_idle = seat.joined_ns > free_ns;
  const uint64_t paid_ns = next != engine_.last_holder ? switch_ns : 0;
  engine_.holder = next;
  engine_.last_holder = next;
  engine_.begin_ns = is_idle ? seat.joined_ns : free_ns + paid_ns;
  engine_.slice_end_ns = engine_.begin_ns + engine_.slice_ns;
  engine_.settled_ns = Sooner(engine_.settled_ns, engine_.begin_ns);
  seat.turns[seat.turn_count++] = {engine_.begin_ns, kNever};
  if (seat.turn_count >= kManyTurns && next != taker_.seat) taker_.wake(next);
}

// Ends the holder's turn; who still has work goes behind everybody who waits.
void Round::TakeAway(uint64_t at_ns, bool is_dry) {
  TurnSeat& seat = engine_.seats[engine_.holder];
  if (seat.turn_count != 0) seat.turns[seat.turn_count - 1].end_ns = at_ns;
  seat.is_in = is_dry ? 0 : 1;
  seat.ticket = ++engine_.last_ticket;
  engine_.holder = kNoSeat;
  engine_.free_ns = at_ns;
  engine_.settled_ns = at_ns;
  const int next = NextSeat();
  if (next != kNoSeat) Give(next, at_ns, SwitchNs(engine_, is_dry));
}

void Round::Evict(int seat) {
  engine_.seats[seat].is_in = 0;
  engine_.seats[seat].turn_count = 0;
}

void Round::Settle(uint64_t until_ns) {
  while (engine_.holder != kNoSeat) {
    TurnSeat& seat = engine_.seats[engine_.holder];
    const uint64_t from_ns = Later(engine_.settled_ns, engine_.begin_ns);
    const uint64_t dry_ns = Plus(from_ns, seat.left_ns);
    const int next = NextSeat();
    const uint64_t stop_ns = next != kNoSeat ? Sooner(dry_ns, engine_.slice_end_ns) : dry_ns;
    if (stop_ns > until_ns) {
      if (until_ns > from_ns) seat.left_ns = dry_ns - until_ns;
      engine_.settled_ns = Later(engine_.settled_ns, until_ns);
      // Slices follow each other while nobody waits, and a newcomer waits for the end of one.
      if (next == kNoSeat && engine_.slice_end_ns <= engine_.settled_ns) {
        const uint64_t over_ns = engine_.settled_ns - engine_.slice_end_ns;
        engine_.slice_end_ns += (over_ns / engine_.slice_ns + 1) * engine_.slice_ns;
      }
      return;
    }
    if (next != kNoSeat && next != taker_.seat && !taker_.is_alive(next)) {
      Evict(next);
      continue;
    }
    seat.left_ns = dry_ns - stop_ns;
    TakeAway(stop_ns, dry_ns == stop_ns);
  }
  engine_.settled_ns = Later(engine_.settled_ns, until_ns);
}

uint64_t Round::OwnTimeSince(uint64_t from_ns) const {
  uint64_t total_ns = 0;
  for (uint32_t i = 0; i < own().turn_count; ++i) {
    const uint64_t start_ns = Later(own().turns[i].start_ns, from_ns);
    const uint64_t end_ns = Sooner(own().turns[i].end_ns, engine_.settled_ns);
    if (end_ns > start_ns) total_ns += end_ns - start_ns;
  }
  return total_ns;
}

void Round::Join(uint64_t at_ns, uint64_t busy_ns) {
  TurnSeat& seat = own();
  seat.is_in = 1;
  seat.ticket = ++engine_.last_ticket;
  seat.joined_ns = at_ns;
  seat.left_ns = busy_ns;
  if (taker_.seat >= engine_.seat_limit) engine_.seat_limit = taker_.seat + 1;
  if (engine_.holder == kNoSeat) Give(taker_.seat, engine_.free_ns, SwitchNs(engine_, true));
}

void Round::Ask(const TurnWish& wish) {
  TurnSeat& seat = own();
  const uint32_t kept = seat.turn_count > wish.passed ? seat.turn_count - wish.passed : 0;
  memmove(seat.turns, seat.turns + (seat.turn_count - kept), kept * sizeof(Turn));
  seat.turn_count = kept;
  Settle(wish.at_ns);

  const uint64_t had_ns = OwnTimeSince(wish.from_ns);
  const uint64_t left_ns = wish.busy_ns > had_ns ? wish.busy_ns - had_ns : 0;
  if (seat.is_in != 0) {
    seat.left_ns = left_ns;
  } else if (left_ns != 0 || seat.turn_count == 0) {
    Join(wish.at_ns, left_ns);
  }
  Settle(wish.at_ns);
}

bool Round::Leave(uint64_t at_ns) {
  Settle(at_ns);
  if (holds() && engine_.begin_ns > engine_.settled_ns) {
    own().left_ns = 0;
    return false;
  }
  if (holds()) {
    TakeAway(Later(at_ns, engine_.begin_ns), true);
    WakeOthers();
  }
  Evict(taker_.seat);
  return true;
}

bool Round::IsFree(uint64_t at_ns) const {
  return engine_.holder == kNoSeat || (holds() && engine_.begin_ns <= at_ns);
}

void Round::Vacate() {
  if (holds()) TakeAway(Later(engine_.settled_ns, engine_.begin_ns), true);
  Evict(taker_.seat);
}

void Round::WakeOthers() const {
  for (int i = 0; i < engine_.seat_limit; ++i) {
    if (engine_.seats[i].is_in != 0 && i != taker_.seat) taker_.wake(i);
  }
}

// When everybody before this process will be done as far as they say.
uint64_t Round::ForecastNs() const {
  if (engine_.holder == kNoSeat || own().is_in == 0) return kNever;
  const uint64_t from_ns = Later(engine_.settled_ns, engine_.begin_ns);
  const uint64_t dry_ns = Plus(from_ns, engine_.seats[engine_.holder].left_ns);
  uint64_t at_ns = Sooner(dry_ns, engine_.slice_end_ns);
  at_ns += SwitchNs(engine_, dry_ns <= engine_.slice_end_ns);
  for (int next = NextSeat(); next != kNoSeat && next != taker_.seat;) {
    const TurnSeat& seat = engine_.seats[next];
    at_ns += Sooner(seat.left_ns, engine_.slice_ns);
    at_ns += SwitchNs(engine_, seat.left_ns <= engine_.slice_ns);
    next = NextSeat(seat.ticket);
  }
  return at_ns;
}

void Round::Answer(TurnAnswer* answer) const {
  answer->count = own().turn_count;
  memcpy(answer->turns, own().turns, own().turn_count * sizeof(Turn));
  answer->forecast_ns = holds() ? kNever : ForecastNs();
  if (holds() && NextSeat() != kNoSeat && answer->count != 0) {
    answer->turns[answer->count - 1].end_ns = engine_.slice_end_ns;
  }
}

}  // namespace

void MakeSharedMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void LayOutTurns(DeviceTimeline* engine, uint64_t slice_ns, uint64_t switch_ns) {
  MakeSharedMutex(&engine->mutex);
  engine->slice_ns = slice_ns;
  engine->switch_ns = switch_ns;
  engine->holder = kNoSeat;
  engine->last_holder = kNoSeat;
}

void AskForTurns(const TurnTaker& taker, const TurnWish& wish, TurnAnswer* answer) {
  Round round(taker);
  round.Ask(wish);
  round.Answer(answer);
}

bool LeaveTurns(const TurnTaker& taker, uint64_t at_ns) { return Round(taker).Leave(at_ns); }

bool IsEngineFree(const TurnTaker& taker, uint64_t at_ns) {
  Round round(taker);
  round.Settle(at_ns);
  return round.IsFree(at_ns);
}

void VacateSeat(DeviceTimeline* engine, int seat) {
  const TurnTaker taker{engine, seat, [](int) { return true; }, [](int) {}};
  Round(taker).Vacate();
}

}  // namespace sim
