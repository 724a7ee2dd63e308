// Whose turn it is on a compute engine: processes take slices, round robin.
//
// Owns the order of processes, what a slice and a switch between two processes take, and the list
// of each process's turns. A process says how long it would keep the engine busy and reads which
// turns it got; whoever looks settles everything up to the present, for everybody. So turns are
// exact however late a process looks, and a stopped process keeps its GPU running.
//
// Everything here lies in shared memory behind a robust mutex: whoever finds that its holder was
// killed starts with an empty engine, and processes with work queue again when they look next.
// Must not know: streams, kernels, clocks, who a process is.
#pragma once

#include <pthread.h>
#include <stdint.h>

namespace sim {

inline constexpr uint64_t kNever = UINT64_MAX;
inline constexpr int kMaxSeats = 512;  // one per process slot
inline constexpr int kNoSeat = -1;

// A turn of a process on the engine, [start_ns, end_ns); the end is kNever while it goes on.
struct Turn {
  uint64_t start_ns;
  uint64_t end_ns;
};

// So many turns are kept for a process that does not look, which is stopped then: it gets no more.
inline constexpr uint32_t kKeptTurns = 64;

struct TurnSeat {
  uint32_t is_in;       // has the engine or waits for it
  uint32_t turn_count;  // kept in `turns`, oldest first
  uint64_t ticket;      // the lowest one that waits is next
  uint64_t joined_ns;
  uint64_t left_ns;  // how long it would still use the engine, as of settled_ns
  Turn turns[kKeptTurns];
};

// The compute engine of one device.
struct DeviceTimeline {
  pthread_mutex_t mutex;
  uint64_t slice_ns;
  uint64_t switch_ns;
  uint64_t settled_ns;    // everything up to here is decided
  uint64_t begin_ns;      // of the holder's turn; ahead of settled_ns during a switch
  uint64_t slice_end_ns;  // when the holder gives way to whoever waits
  uint64_t free_ns;       // since when there is no holder
  uint64_t last_ticket;
  int32_t holder;
  int32_t last_holder;
  int32_t seat_limit;  // no seat at or above this one was ever taken
  int32_t padding;
  TurnSeat seats[kMaxSeats];
};

// A process at an engine, and what only its surroundings can do.
struct TurnTaker {
  DeviceTimeline* engine;
  int seat;
  bool (*is_alive)(int seat);  // of other processes
  void (*wake)(int seat);      // so that it looks again
};

// What a process asks for: from `from_ns` on, up to which it has used its turns, it would keep the
// engine busy for `busy_ns`; 0 is a moment.
struct TurnWish {
  uint64_t at_ns;  // when it asks; may lie in the past
  uint64_t from_ns;
  uint64_t busy_ns;
  uint32_t passed;  // turns of the last answer that it is done with
};

// What a process has: turns in order, the last of which may go on.
struct TurnAnswer {
  uint32_t count;
  Turn turns[kKeptTurns];
  uint64_t forecast_ns;  // without a turn to come: when it may get one; later is possible
};

// Makes a mutex that processes share and that a killed one lets go.
void MakeSharedMutex(pthread_mutex_t* mutex);

// Fills a zeroed engine.
void LayOutTurns(DeviceTimeline* engine, uint64_t slice_ns, uint64_t switch_ns);

// Queues for the engine, or says anew how long it would be used. Nothing happens to a process whose
// turns so far are enough.
void AskForTurns(const TurnTaker& taker, const TurnWish& wish, TurnAnswer* answer);

// Has nothing to do on the engine since `at_ns`: whoever waits gets it then, also if that lies in
// the past. False when a turn is about to begin, which it then has for a moment.
bool LeaveTurns(const TurnTaker& taker, uint64_t at_ns);

// Whether the process has the engine at `at_ns`, or nobody has.
bool IsEngineFree(const TurnTaker& taker, uint64_t at_ns);

// Clears the seat of a process that is gone.
void VacateSeat(DeviceTimeline* engine, int seat);

}  // namespace sim
