// See sms.h.
#include "machine/sms.h"

#include <errno.h>

namespace sim {
namespace {

constexpr uint64_t kCheckNs = 2'000'000;  // how long a killed process may be in the way

class SmRound {
 public:
  explicit SmRound(const SmTaker& taker) : taker_(taker), table_(*taker.table) {
    if (pthread_mutex_lock(&table_.mutex) == EOWNERDEAD) pthread_mutex_consistent(&table_.mutex);
  }
  ~SmRound() { pthread_mutex_unlock(&table_.mutex); }
  SmRound(const SmRound&) = delete;
  SmRound& operator=(const SmRound&) = delete;

  void Ask(const SmWish& wish, SmAnswer* answer);
  void End(int place, uint64_t end_ns);
  void Vacate(int seat);

 private:
  SmSeat& own() const { return table_.seats[taker_.seat]; }
  void Settle(uint64_t until_ns);
  int FirstSeat() const;
  int FreePlace() const;
  uint64_t RoomNs(const SmSeat& seat) const;
  uint64_t NextEndNs(uint64_t after_ns) const;
  uint32_t UsedAt(uint64_t at_ns) const;
  void Give(int seat, uint64_t start_ns);
  void CheckOwners(uint64_t now_ns);

  const SmTaker& taker_;
  SmTable& table_;
};

int SmRound::FirstSeat() const {
  int first = kNoSeat;
  for (int i = 0; i < table_.seat_limit; ++i) {
    const SmSeat& seat = table_.seats[i];
    if (seat.is_in == 0) continue;
    if (first == kNoSeat || seat.ticket < table_.seats[first].ticket) first = i;
  }
  return first;
}

int SmRound::FreePlace() const {
  for (int i = 0; i < kMaxPlaces; ++i) {
    const SmPlace& place = table_.places[i];
    if (i >= table_.place_limit || place.sms == 0 || place.end_ns <= table_.settled_ns) return i;
  }
  return kNoPlace;
}

uint32_t SmRound::UsedAt(uint64_t at_ns) const {
  uint32_t used = 0;
  for (int i = 0; i < table_.place_limit; ++i) {
    const SmPlace& place = table_.places[i];
    if (place.start_ns <= at_ns && at_ns < place.end_ns) used += place.sms;
  }
  return used;
}

uint64_t SmRound::NextEndNs(uint64_t after_ns) const {
  uint64_t next_ns = kNever;
  for (int i = 0; i < table_.place_limit; ++i) {
    const SmPlace& place = table_.places[i];
    if (place.sms != 0 && place.end_ns > after_ns && place.end_ns < next_ns) next_ns = place.end_ns;
  }
  return next_ns;
}

// When what it asks for fits, as far as ends are known. Nothing starts later than that.
uint64_t SmRound::RoomNs(const SmSeat& seat) const {
  uint64_t at_ns = seat.joined_ns;
  while (at_ns != kNever && UsedAt(at_ns) + seat.sms > table_.sm_count) at_ns = NextEndNs(at_ns);
  return at_ns;
}

void SmRound::Give(int next, uint64_t start_ns) {
  SmSeat& seat = table_.seats[next];
  const int place = FreePlace();
  const uint64_t end_ns = seat.length_ns == kNever ? kNever : start_ns + seat.length_ns;
  table_.places[place] = {start_ns, end_ns, next, seat.sms};
  if (place >= table_.place_limit) table_.place_limit = place + 1;
  seat.place = place;
  seat.is_in = 0;
  if (next != taker_.seat) taker_.wake(next);
}

void SmRound::CheckOwners(uint64_t now_ns) {
  if (now_ns < table_.checked_ns + kCheckNs) return;
  table_.checked_ns = now_ns;
  for (int i = 0; i < table_.place_limit; ++i) {
    const SmPlace& place = table_.places[i];
    const bool is_there = place.sms != 0 && place.end_ns > now_ns;
    if (is_there && place.owner != taker_.seat && !taker_.is_alive(place.owner)) {
      Vacate(place.owner);
    }
  }
}

void SmRound::Settle(uint64_t until_ns) {
  for (int next = FirstSeat(); next != kNoSeat; next = FirstSeat()) {
    const uint64_t start_ns = RoomNs(table_.seats[next]);
    if (start_ns > until_ns || FreePlace() == kNoPlace) {
      CheckOwners(until_ns);
      break;
    }
    if (next == taker_.seat || taker_.is_alive(next)) {
      Give(next, start_ns);
    } else {
      Vacate(next);
    }
  }
  if (until_ns > table_.settled_ns) table_.settled_ns = until_ns;
}

void SmRound::Ask(const SmWish& wish, SmAnswer* answer) {
  SmSeat& seat = own();
  if (taker_.seat >= table_.seat_limit) table_.seat_limit = taker_.seat + 1;
  Settle(wish.at_ns);
  answer->is_earlier = seat.place != kNoPlace;
  if (seat.place == kNoPlace) {
    if (seat.is_in == 0) {
      seat.is_in = 1;
      seat.ticket = ++table_.last_ticket;
      seat.joined_ns = wish.at_ns;
    }
    seat.sms = wish.sms;
    seat.length_ns = wish.length_ns;
    Settle(wish.at_ns);
  }
  answer->place = seat.place;
  answer->forecast_ns = NextEndNs(table_.settled_ns);
  if (seat.place == kNoPlace) return;
  answer->start_ns = table_.places[seat.place].start_ns;
  seat.place = kNoPlace;
}

void SmRound::End(int place, uint64_t end_ns) {
  table_.places[place].end_ns = end_ns;
  for (int i = 0; i < table_.seat_limit; ++i) {
    if (table_.seats[i].is_in != 0 && i != taker_.seat) taker_.wake(i);
  }
}

void SmRound::Vacate(int seat) {
  table_.seats[seat].is_in = 0;
  table_.seats[seat].place = kNoPlace;
  for (int i = 0; i < table_.place_limit; ++i) {
    SmPlace& place = table_.places[i];
    if (place.owner == seat) place.sms = 0;
  }
}

}  // namespace

void LayOutSms(SmTable* table, uint32_t sm_count, bool is_used) {
  MakeSharedMutex(&table->mutex);
  table->sm_count = sm_count;
  table->is_used = is_used ? 1 : 0;
  for (SmSeat& seat : table->seats) seat.place = kNoPlace;
}

void AskForSms(const SmTaker& taker, const SmWish& wish, SmAnswer* answer) {
  SmRound(taker).Ask(wish, answer);
}

void EndPlace(const SmTaker& taker, int place, uint64_t end_ns) {
  SmRound(taker).End(place, end_ns);
}

void VacateSms(SmTable* table, int seat) {
  const SmTaker taker{table, seat, [](int) { return true; }, [](int) {}};
  SmRound(taker).Vacate(seat);
}

}  // namespace sim
