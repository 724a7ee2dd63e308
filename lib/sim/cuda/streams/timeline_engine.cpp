// The order of things: work with its memory and its lists, who may start, what happens next. Must
// not know: threads, locks, clocks.
#include "cuda/streams/timeline_engine.h"

#include <stdlib.h>

namespace sim {

namespace {

bool Precedes(const Work& left, const Work& right) {
  if (left.priority != right.priority) return left.priority < right.priority;
  if (left.ready_ns != right.ready_ns) return left.ready_ns < right.ready_ns;
  return left.sequence < right.sequence;
}

}  // namespace

void WorkList::PushBack(Work* work) {
  Work** link = &first;
  while (*link != nullptr) link = &(*link)->next;
  work->next = nullptr;
  *link = work;
}

void WorkList::PushReady(Work* work) {
  Work** link = &first;
  while (*link != nullptr && !Precedes(*work, **link)) link = &(*link)->next;
  work->next = *link;
  *link = work;
}

Work* WorkList::PopFirst() {
  Work* work = first;
  if (work != nullptr) first = work->next;
  return work;
}

void WorkList::Remove(Work* work) {
  Work** link = &first;
  while (*link != nullptr && *link != work) link = &(*link)->next;
  if (*link == work) *link = work->next;
}

void* AllocateWork(uint64_t size) { return calloc(1, size); }

void RetainWork(Work* work) { ++work->references; }

void ReleaseWork(Work* work) {
  if (work == nullptr || --work->references != 0) return;
  if (work->dispose != nullptr) work->dispose(*work);
  free(work->successors);
  free(work);
}

namespace {

// Longer than a thread that waits spins (timeline.cpp): where time is virtual, each turn of a spin
// costs a change of processes.
constexpr uint64_t kMeetingPollNs = 30'000;

int CopyEngineOf(const Work& work) {
  return static_cast<int>(work.engine) - static_cast<int>(Engine::kCopyIn);
}

bool IsComputing(const Work& work) {
  return work.engine == Engine::kCompute || work.engine == Engine::kRecord;
}

uint64_t Later(uint64_t left_ns, uint64_t right_ns) {
  return left_ns > right_ns ? left_ns : right_ns;
}

// From when on the pause of a kernel behind this work counts.
uint64_t LeftGpuNs(const Work& work) {
  return work.hands_on ? work.behind_ns : work.end_ns + work.trail_ns;
}

// How long a kernel that waits for nothing any more pauses.
uint64_t PauseNs(const Work& work) {
  const uint64_t launched_ns = work.submitted_ns + work.lag_ns;
  const uint64_t followed_ns = work.behind_ns != 0 ? work.behind_ns + work.gap_ns : 0;
  const uint64_t begin_ns = Later(launched_ns, followed_ns);
  return begin_ns > work.ready_ns ? begin_ns - work.ready_ns : 0;
}

}  // namespace

void Scheduler::After(Work* later, Work* earlier) {
  if (earlier == nullptr || earlier == later) return;
  if (earlier->state == WorkState::kDone) {
    later->ready_ns = Later(later->ready_ns, earlier->end_ns);
    later->behind_ns = Later(later->behind_ns, LeftGpuNs(*earlier));
    return;
  }
  if (earlier->successor_count == earlier->successor_room) {
    const uint32_t room = earlier->successor_room != 0 ? earlier->successor_room * 2 : 2;
    void* grown = realloc(earlier->successors, room * sizeof(Work*));
    if (grown == nullptr) return;  // an order lost beats a process lost
    earlier->successors = static_cast<Work**>(grown);
    earlier->successor_room = room;
  }
  earlier->successors[earlier->successor_count++] = later;
  ++later->waits_for;
  if (later->engine == Engine::kCompute && !earlier->hands_on) {
    later->pause_ns = Later(later->pause_ns, earlier->trail_ns);
  }
}

void Scheduler::Submit(Work* work) {
  RetainWork(work);
  ++pending_;
  work->sequence = ++next_sequence_;
  work->state = WorkState::kWaiting;
  work->ready_ns = Later(work->ready_ns, now_ns_);
  work->submitted_ns = now_ns_;
  if (work->engine == Engine::kCompute && work->duration_ns == 0) work->duration_ns = 1;
  // What it will be if its turn comes while others run; more is told when that is known. Less would
  // be a moment without work, in which the process loses the GPU.
  if (work->engine == Engine::kCompute) work->pause_ns += work->gap_ns;
  // An event takes time only behind other work.
  if (work->engine == Engine::kRecord && work->waits_for == 0) {
    work->duration_ns = 0;
    work->hands_on = true;
  }
  if (IsComputing(*work)) devices_[work->device_index].Announce(*work);
  if (work->engine == Engine::kHost) ++hosts_pending_;
  if (work->engine == Engine::kPoll) ++polls_pending_;
  if (work->writes_late) ++writes_pending_;
  if (work->waits_for != 0) {
    // Or the process would seem to run dry before it, and lose the GPU.
    if (IsComputing(*work)) devices_[work->device_index].LookAtTurns(now_ns_);
    return;
  }
  BecomeReady(work, work->ready_ns, false);
  SettleInstants();
  StartEverywhere(now_ns_);
}

void Scheduler::BecomeReady(Work* work, uint64_t at_ns, bool is_behind) {
  work->ready_ns = Later(work->ready_ns, at_ns);
  work->state = WorkState::kReady;
  switch (work->engine) {
    case Engine::kNone:
      Happen(work, is_behind);
      break;
    case Engine::kRecord:
      // Behind other work, the process had the GPU just now; in front of it, that is still to come.
      if (work->duration_ns == 0 && (is_behind || devices_[work->device_index].IsFree(now_ns_))) {
        instants_.PushBack(work);
        break;
      }
      [[fallthrough]];
    case Engine::kCompute:
      if (work->engine == Engine::kCompute) {
        devices_[work->device_index].SetPause(work, PauseNs(*work));
      }
      devices_[work->device_index].MakeReady(work);
      break;
    case Engine::kCopyIn:
    case Engine::kCopyOut:
    case Engine::kCopyLocal: {
      uint64_t& free_ns = devices_[work->device_index].copy_free_ns[CopyEngineOf(*work)];
      Begin(work, Later(free_ns, work->ready_ns));
      free_ns = work->end_ns;
      break;
    }
    case Engine::kHost:
      hosts_.PushBack(work);
      break;
    case Engine::kPoll:
      // What holds when somebody looks held when the work came to it, as far as anybody can tell.
      if (work->condition(*work)) {
        Happen(work, is_behind);
      } else {
        polls_.PushBack(work);
      }
      break;
  }
}

// What takes no time: at once, or when its process has the device. Behind other work it had that
// just now.
void Scheduler::Happen(Work* work, bool is_behind) {
  DeviceEngine& device = devices_[work->device_index];
  if (!work->in_turn || is_behind || device.IsFree(now_ns_)) {
    instants_.PushBack(work);
  } else {
    device.MakeReady(work);
  }
}

void Scheduler::Begin(Work* work, uint64_t at_ns) {
  work->start_ns = at_ns;
  work->end_ns = at_ns + work->duration_ns;
  work->state = WorkState::kRunning;
  timed_.PushBack(work);
}

void Scheduler::Finish(Work* work, uint64_t at_ns) {
  if (work->state != WorkState::kRunning) work->start_ns = work->ready_ns;
  work->end_ns = at_ns;
  work->state = WorkState::kDone;
  if (work->action != nullptr && work->engine != Engine::kHost) work->action(*work);
  for (uint32_t i = 0; i < work->successor_count; ++i) {
    Work* successor = work->successors[i];
    successor->ready_ns = Later(successor->ready_ns, at_ns);
    successor->behind_ns = Later(successor->behind_ns, LeftGpuNs(*work));
    if (--successor->waits_for == 0 && successor->state == WorkState::kWaiting) {
      BecomeReady(successor, at_ns, true);
    }
  }
  --pending_;
  if (work->engine == Engine::kPoll) --polls_pending_;
  if (work->writes_late) --writes_pending_;
  ReleaseWork(work);
}

// Iterative on purpose: a stream may hold a chain of thousands of markers.
void Scheduler::SettleInstants() {
  while (Work* work = instants_.PopFirst()) Finish(work, work->ready_ns);
}

void Scheduler::StartEverywhere(uint64_t at_ns) {
  for (DeviceEngine& device : devices_) device.StartReady(at_ns);
  for (DeviceEngine& device : devices_) device.Meet();
}

uint64_t Scheduler::NextEventNs() const {
  uint64_t next_ns = kNever;
  for (const DeviceEngine& device : devices_) {
    if (device.NextStopNs() < next_ns) next_ns = device.NextStopNs();
    if (device.NextTurnNs() < next_ns) next_ns = device.NextTurnNs();
    // Nobody says when another process's kernel begins.
    if (device.awaits_others() && now_ns_ + kMeetingPollNs < next_ns) {
      next_ns = now_ns_ + kMeetingPollNs;
    }
  }
  for (const Work* work = timed_.first; work != nullptr; work = work->next) {
    if (work->end_ns < next_ns) next_ns = work->end_ns;
  }
  return next_ns;
}

// The earliest thing due by `limit_ns`; false when there is none.
bool Scheduler::HappenNext(uint64_t limit_ns) {
  DeviceEngine* stopping = nullptr;
  uint64_t at_ns = kNever;
  for (DeviceEngine& device : devices_) {
    if (device.NextStopNs() < at_ns) {
      at_ns = device.NextStopNs();
      stopping = &device;
    }
  }
  Work* ending = nullptr;
  for (Work* work = timed_.first; work != nullptr; work = work->next) {
    if (work->end_ns < at_ns) {
      at_ns = work->end_ns;
      ending = work;
    }
  }
  if (at_ns > limit_ns || at_ns == kNever) return false;

  if (ending != nullptr) {
    timed_.Remove(ending);
    Finish(ending, at_ns);
  } else {
    stopping->ProgressTo(at_ns);
    while (Work* work = stopping->TakeFinished()) {
      // What held when it asked for the device may hold no more.
      if (work->engine == Engine::kPoll && !work->condition(*work)) {
        work->state = WorkState::kReady;
        polls_.PushBack(work);
      } else {
        Finish(work, at_ns);
      }
    }
  }
  SettleInstants();
  // A kernel that starts beside others changes who runs from here on, not before.
  for (DeviceEngine& device : devices_) device.ProgressTo(at_ns);
  StartEverywhere(at_ns);
  return true;
}

void Scheduler::CheckPolls() {
  for (Work** link = &polls_.first; *link != nullptr;) {
    Work* work = *link;
    if (!work->condition(*work)) {
      link = &work->next;
      continue;
    }
    *link = work->next;
    work->ready_ns = Later(work->ready_ns, now_ns_);
    Happen(work, /*is_behind=*/false);
    SettleInstants();
    link = &polls_.first;  // what it released may be a poll as well
  }
}

void Scheduler::AdvanceTo(uint64_t now_ns) {
  for (DeviceEngine& device : devices_) device.LookAtTurns(now_ns);
  for (DeviceEngine& device : devices_) device.Meet();
  while (HappenNext(now_ns)) {
  }
  if (now_ns > now_ns_) now_ns_ = now_ns;
  for (DeviceEngine& device : devices_) device.ProgressTo(now_ns_);
  CheckPolls();
  StartEverywhere(now_ns_);
}

Work* Scheduler::TakeHost() {
  Work* work = hosts_.PopFirst();
  if (work == nullptr) return nullptr;
  work->state = WorkState::kRunning;
  work->start_ns = now_ns_;
  ++hosts_running_;
  return work;
}

void Scheduler::FinishHost(Work* work) {
  --hosts_running_;
  --hosts_pending_;
  Finish(work, now_ns_);
  SettleInstants();
  StartEverywhere(now_ns_);
}

}  // namespace sim
