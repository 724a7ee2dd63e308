// Which multiprocessors of a device are taken, where processes run side by side as clients of a
// multi-process server (MPS) do.
//
// Owns the order in which processes start kernels and when each one starts: behind all that asked
// before, as soon as it fits beside what runs. Whoever asks settles that for everybody, so a kernel
// starts in time however late its process looks. A process asks for one kernel at a time.
// Must not know: streams, kernels, clocks, who a process is.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "machine/turns.h"

namespace sim {

inline constexpr int kMaxPlaces = 2'048;  // kernels that run at once; more of them wait
inline constexpr int kNoPlace = -1;

struct SmPlace {
  uint64_t start_ns;
  uint64_t end_ns;  // kNever: not known yet
  int32_t owner;
  uint32_t sms;
};

struct SmSeat {
  uint32_t is_in;   // waits for room
  uint32_t sms;     // ... so much of it
  uint64_t ticket;  // the lowest one is next
  uint64_t joined_ns;
  uint64_t length_ns;
  int32_t place;  // got and not yet taken note of, or kNoPlace
  uint32_t padding;
};

struct SmTable {
  pthread_mutex_t mutex;
  uint64_t settled_ns;
  uint64_t checked_ns;  // when the owners of places were last seen alive
  uint64_t last_ticket;
  uint32_t sm_count;
  int32_t seat_limit;
  int32_t place_limit;
  uint32_t is_used;  // processes run side by side
  SmSeat seats[kMaxSeats];
  SmPlace places[kMaxPlaces];
};

struct SmTaker {
  SmTable* table;
  int seat;
  bool (*is_alive)(int seat);  // of other processes
  void (*wake)(int seat);      // so that it looks again
};

struct SmWish {
  uint64_t at_ns;
  uint32_t sms;        // no more than there are
  uint64_t length_ns;  // kNever: not known yet
};

struct SmAnswer {
  int32_t place;         // kNoPlace: there is no room yet
  bool is_earlier;       // the place is for the wish before this one, which was forgotten
  uint64_t start_ns;     // with a place; may lie ahead of at_ns, but not of everybody's present
  uint64_t forecast_ns;  // without a place: when there may be room
};

// Fills a zeroed table.
void LayOutSms(SmTable* table, uint32_t sm_count, bool is_used);

// Waits for room, or changes what this process waits for.
void AskForSms(const SmTaker& taker, const SmWish& wish, SmAnswer* answer);

// Says when the kernel at a place will end.
void EndPlace(const SmTaker& taker, int place, uint64_t end_ns);

// Clears what a process that is gone held and waited for.
void VacateSms(SmTable* table, int seat);

}  // namespace sim
