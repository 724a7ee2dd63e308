// A process's seat on one device: what its container pays for GPU time, and whose turn it is. The
// words are in the container's own file (state/time_file.h); neighbours are read from their
// notices (state/notice_board.h), and their words copied there. Atomics only; a process that dies
// or stops anywhere holds up nobody. Must not know CUDA, the clock, or who measures.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "policy/gang.h"
#include "policy/turn.h"
#include "policy/windows.h"
#include "state/notice_board.h"
#include "state/time_file.h"

namespace gpufence {

// What ran on a device: a container had work there since `since_ns`, pauses between kernels
// included, and is charged for [begin_ns, end_ns) of the monotonic clock.
struct RanNs {
  uint64_t since_ns;
  uint64_t begin_ns;
  uint64_t end_ns;
  bool is_own;       // none of it can be neighbours'
  uint64_t idle_ns;  // of the pauses: the GPU waited for the host
};

// A process's place on one device. Opened once, wiped on fork; cheap to copy. After Join any
// thread.
class CoreSeat {
 public:
  // Joins the container's file in the first of `own`'s folders that allows it, or, when there are
  // none, memory of this process alone: finds or makes the device's row, and a place whose lock
  // this process holds until it ends. Where `node_folder` is not "", takes turns with the
  // containers that have notices there; where it cannot, it does without (shares_device), with one
  // clause in `why`.
  // Shares in thousandths of a percent; a soft share below the other counts as the other. `imposed`
  // as in Impose. False with one clause in `why`. One thread at a time.
  bool Join(const char* node_folder, const RegionPlaces& own, const uint8_t uuid[16],
            uint32_t share, uint32_t soft_share, uint64_t now_ns, char* why, size_t why_bytes,
            CoreShares imposed = {});

  // The container's shares from now on, whatever its processes joined with; hard 0: the lowest of
  // those again. Every process of the container that uses the device is told the same. What the
  // container owes is worth as much of its GPU time as before.
  void Impose(CoreShares shares, uint64_t now_ns);

  // Takes a place in a file that the caller opened itself; turns as in Join.
  void Sit(const TimeFile& file, TimePlace place);
  bool Meet(const char* node_folder, char* why, size_t why_bytes);
  // Takes its notice down.
  void Part();

  // ---- GPU time (docs/core-limiter.md, "The account") ----

  // Charges the container for what ran, as far as none of its processes did. `now_ns` as for
  // DueAfter. Returns what was charged. About once a second it also looks for
  // processes of the container that died, at a system call each.
  uint64_t Charge(const RanNs& ran, uint64_t now_ns);
  uint64_t Charge(uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns) {
    return Charge({begin_ns, begin_ns, end_ns, false, 0}, now_ns);
  }

  // All GPU time that the container was ever charged.
  uint64_t ChargedNs() const { return tenant().charged_ns.load(std::memory_order_relaxed); }

  // Nanoseconds until the container may launch again; 0: now.
  uint64_t HeldFor(uint64_t now_ns) const;

  // How far what is owed is ahead of now; negative: what may be used at once.
  int64_t AheadNs(uint64_t now_ns) const;

  // The share that a charge would use now.
  uint32_t ShareNow(uint64_t now_ns) const;

  // ---- neighbours (docs/side-by-side.md) ----

  // Until when surely no neighbour has work on the GPU, as far as their notices tell: 1 while one
  // does, 0 where there can be none. What begins to run later may wait for the GPU first.
  uint64_t CalmUntilNs(uint64_t now_ns) const;
  // Whether work of another container, or of another process of this one, may have had the GPU
  // between two moments of which all have told by now.
  bool OthersMayHaveRun(uint64_t begin_ns, uint64_t end_ns, uint64_t now_ns) const;

  // How the driver lets this process and its neighbours have the GPU; by slices unless this says
  // otherwise. Where they have it together nobody takes turns.
  void Share(Together together) { together_ = together; }

  // A launch came, which may be held from now on. Where nothing was outstanding for a while, and
  // none is held, the program itself had no work: a rest. `waited`: it is the first launch since
  // the process waited.
  void NoteArrival(uint64_t now_ns, bool waited);
  void BeginHold();
  void EndHold();

  // The program waited until nothing of it was left, just now.
  void NoteWait(uint64_t now_ns);

  // What the container is beside others, from now on.
  void Follow(SeatTerms terms);

  // Whether a neighbour of higher priority is there, so that queues have to be short; and whether
  // one has work, which goes first.
  bool HasSuperior(uint64_t now_ns) const;
  bool Yields(uint64_t now_ns) const;
  // Whether a neighbour of lower priority is there, which waits for the end of our work.
  bool HasInferior(uint64_t now_ns) const;
  // Whether one waits for its host while it has work, so that the GPU is there for both in turns of
  // less than a slice.
  bool HasHostBoundSuperior(uint64_t now_ns) const;
  // Sleeps until the neighbour of higher priority that was active last says that its work begins or
  // ends, at most `most_ns`; may return early.
  void AwaitSuperior(uint64_t most_ns) const;
  // Whether our work came lately behind a pause, in which it launches: requests, no endless work.
  bool CameBack(uint64_t now_ns) const;
  // It launches until it hears of our work, which is outstanding from now on: tells it if we came
  // back, or told that our work had ended. What goes on and on is told at looks.
  void TellInferiors(uint64_t now_ns);

  // Whether the container takes turns with others whose queues are as deep.
  bool TakesTurns() const {
    return shares_device() && row().is_deep.load(std::memory_order_seq_cst) != 0;
  }

  // ---- turns (docs/core-limiter.md, "Turns") ----

  // Whether other containers can be on the device, in turns.
  bool shares_device() const { return board_ != nullptr; }
  // Whether processes have the GPU by slices, one after the other.
  bool has_slices() const { return together_ == Together::kBySlices; }

  // True while it goes without turns, since its neighbours kept it from them for too long.
  bool IsAlone(uint64_t now_ns) const;

  // Asks for the turn. True when the container has it now and it is not closing. Never waits.
  // Whoever waits asks again at every tick: a request that is older than silent_ns is
  // forgotten.
  bool WantTurn(uint64_t now_ns);

  // True while the container has the turn and it is not closing: one load. Ask after Beat(now,
  // true), or after a tick that said so: then whoever moves the turn on sees what is outstanding.
  // Whoever takes no turns always has it.
  bool HasTurn() const { return !TakesTurns() || HasTurnAmongOthers(); }

  // Sleeps until the container has the turn, at most `most_ns`; may return early.
  void AwaitTurn(uint64_t most_ns) const;

  // What this process has outstanding on the device: said by its watcher at every tick (a
  // heartbeat) and by a launch that ends idleness. `ends_ns`: when that is expected to be done; 0:
  // unknown.
  void Beat(uint64_t now_ns, bool outstanding, uint64_t ends_ns = 0);

  // How long this process's launches take, in the mean: its container's turns are as long as that
  // needs.
  void NoteLaunches(uint64_t launch_ns);

  // Reads the neighbours' notices, closes a turn of its own that is over, hands it over once it is
  // drained and wakes whoever is next, takes one that nobody alive has; and writes the own notice.
  // Called by every watcher at every tick, and by who waits: system calls, no locks that anybody
  // else could hold. True when the turn word changed.
  bool MoveTurn(uint64_t now_ns);

  // Nanoseconds until the container's turn may be over; UINT64_MAX when nobody else wants one, and
  // when this is not its turn.
  uint64_t TurnLeftNs(uint64_t now_ns) const;

  // True while the container's turn is closing: it is handed over when all is done.
  bool IsDraining() const;

  // The process launches no more: what it has, and its place in the queue, is for others.
  void Leave(uint64_t now_ns);

  // True when another container wanted the device during the last `window_ns`; where none is met,
  // when NoteForeign said so.
  bool OthersWant(uint64_t now_ns, uint64_t window_ns) const;

  // True where neighbours are not met in the file, and seeing them would change the share.
  bool LooksForNeighbours() const;

  // Somebody who has no seat in this file uses the device, or may. Counts a little beyond the next
  // look.
  void NoteForeign(uint64_t now_ns);

  // ---- collectives (policy/gang.h, policy/windows.h) ----

  // When the container may launch beside others that meet in collectives as it does.
  Window WindowNow(uint64_t now_ns) const;

  // The container's processes on other devices of this file, for one that launched `count`
  // collectives here.
  GangView SeeGang(uint32_t count, uint64_t now_ns) const;

  // What this process says of itself.
  void TellCollectives(uint32_t count, uint64_t now_ns);
  void TellGangHeld(bool is_behind, bool is_quiet, uint64_t now_ns);
  void TellGangGoesOn();

 private:
  bool HasTurnAmongOthers() const;
  uint64_t IdleSinceNs(uint64_t waited_ns, uint64_t now_ns) const;
  bool OthersTakeTurns(uint64_t now_ns) const;
  bool HasCollectives(uint64_t now_ns) const;
  uint64_t JobOf() const;
  void NoteRan(const RanNs& ran, uint64_t busy_ns, uint64_t now_ns);
  void NoteDensity(const RanNs& ran, uint64_t busy_ns, uint64_t new_ns);
  void ShareWithNeighbours(uint64_t now_ns);
  void GiveBack(uint64_t busy_ns, uint64_t now_ns);
  void CountCharged(uint64_t busy_ns);
  void UpdateDepth(uint64_t now_ns);
  void UpdateSoftShare(uint64_t now_ns);
  void UpdateRank(uint64_t now_ns);
  template <typename Visit>
  void ForEachSuperior(Visit visit) const;
  SeatTerms OwnTerms() const { return UnpackTerms(tenant().terms.load(std::memory_order_relaxed)); }
  SeatTerms TermsNow(uint64_t now_ns) const;
  uint32_t FloorNow(SeatTerms terms) const;
  void UpdateFloor(uint64_t now_ns);
  uint64_t CreditNs(uint32_t share) const;
  TimeRow& row() const { return file_.region->rows[place_.row]; }
  CoreTenant& tenant() const { return file_.region->tenants[place_.row][kOwnTenant]; }
  CoreMember& member() const { return file_.region->members[place_.row][file_.member]; }
  uint64_t MissedNs(uint64_t now_ns) const;
  bool HasBusySiblings(uint64_t now_ns) const;
  void SignAt(uint64_t now_ns);
  void UpdateSharesAt(uint64_t now_ns);
  void UpdateShares(uint64_t now_ns);
  void Rescale(uint64_t from, uint64_t to, uint64_t now_ns);
  void Arrive(uint64_t now_ns);
  TenantView OwnView(uint64_t now_ns) const;
  void View(Turn turn, uint64_t now_ns, TenantView* views) const;
  bool Change(uint64_t* word, Turn to, const TenantView* views, uint64_t now_ns);
  void ReadNotices(uint64_t now_ns);
  void CopyNotice(uint32_t place, const Notice& notice, uint64_t now_ns);
  void Believe(const Notice& notice, uint64_t now_ns);
  uint32_t PlaceOf(uint64_t author, bool makes, uint64_t now_ns);
  uint64_t AuthorOf(uint32_t place) const;
  void CountWait(uint64_t now_ns);
  void NoteTurn(Turn turn);
  uint64_t UsedInTurn(Turn turn) const;
  void Decide(uint64_t now_ns);
  void PostNotice(uint64_t now_ns);
  void PostAndLeave(uint64_t now_ns);

  NoticeBoard* board_;  // null: no turns. First, as every launch asks it
  TimePlace place_;
  TimeFile file_;
  TimeSignature signature_;
  // Atomic by builtins, since a seat can be copied.
  uint64_t signed_ns_ = 0;    // when that was last written again
  uint64_t imposed_ = 0;      // packed
  uint64_t came_ns_ = 0;      // when work came last behind a pause in which others launch
  uint32_t tells_end_ = 0;    // not 0: the notice tells that nothing is outstanding
  uint64_t burst_ns_ = 0;     // GPU time that may be saved up; 0: as much as is usual
  uint64_t unwaited_ns_ = 0;  // GPU time since the process waited until nothing was left
  uint64_t waited_ns_ = 0;    // when that was; 0: a launch was asked for since
  // When work came last where there was none ...
  struct {
    uint64_t charged_ns = 0;  // ... so much was charged,
    uint64_t worked_ns = 0;   // and from one such moment to the next so much in the mean
  } arrived_;
  // Until when it has had its floor, as of when so much was charged.
  struct {
    uint64_t due_ns = 0;
    uint64_t charged_ns = 0;
    uint64_t yielded_ns = 0;  // when a neighbour of higher priority had work last
  } floor_;
  Together together_ = Together::kBySlices;
  // Of whoever entered the board.
  Notice posted_ = {};
  struct {
    uint64_t began_us = 0;    // the container's own turn, as of when
    uint64_t charged_ns = 0;  // so much was charged
  } turn_;
};

}  // namespace gpufence
