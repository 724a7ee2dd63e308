// A process's share of one compute engine: which kernels run side by side, and in whose turn.
// Must not know: what waits for whom, threads, clocks.
#include "cuda/streams/timeline_engine.h"

namespace sim {

namespace {

bool IsPausing(const Work& work) { return work.pause_ns != 0; }

bool IsAwaiting(const Work& work) {
  return work.meets.ranks != 0 && !work.has_met && !IsPausing(work);
}

}  // namespace

void DeviceEngine::Attach(const TurnTaker& taker, const SmTaker& sharer, MeetingTable* meetings,
                          uint32_t sms, int device_index, BusyObserver observer) {
  taker_ = taker;
  sharer_ = sharer;
  meetings_ = meetings;
  sms_ = sms;
  device_index_ = device_index;
  observer_ = observer;
}

void DeviceEngine::Announce(const Work& work) {
  backlog_ns_ += work.pause_ns + work.duration_ns;
  if (work.engine == Engine::kCompute) ++pending_kernels_;
}

void DeviceEngine::MakeReady(Work* work) {
  if (work->engine != Engine::kCompute || IsPausing(*work)) {
    unplaced_.PushBack(work);
  } else {
    ready_.PushReady(work);
  }
}

void DeviceEngine::SetPause(Work* work, uint64_t pause_ns) {
  backlog_ns_ += pause_ns - work->pause_ns;
  work->pause_ns = pause_ns;
}

void DeviceEngine::StartReady(uint64_t at_ns) {
  if (running_.empty()) progressed_ns_ = at_ns;
  while (Work* work = unplaced_.PopFirst()) Start(work, at_ns);
  if (IsShared()) {
    StartBesideOthers(at_ns);
  } else {
    StartInOrder(at_ns);
  }
  LookAtTurns(at_ns);
}

// A kernel that does not fit holds back those behind it, as the hardware's queue does.
void DeviceEngine::StartInOrder(uint64_t at_ns) {
  while (!ready_.empty()) {
    Work* work = ready_.first;
    if (work->sms > sms_) work->sms = static_cast<uint16_t>(sms_);
    if (!running_.empty() && sms_used_ + work->sms > sms_) break;
    ready_.PopFirst();
    Start(work, at_ns);
  }
}

// The same where kernels of other processes run, too.
void DeviceEngine::StartBesideOthers(uint64_t at_ns) {
  while (!ready_.empty()) {
    LookAtSms(at_ns);
    if (room_.place == kNoPlace || room_.start_ns > at_ns) return;
    Work* work = asked_;
    work->place = room_.place;
    room_.place = kNoPlace;
    asked_ = nullptr;
    ready_.Remove(work);
    Start(work, at_ns);
  }
}

// Asks for room for the first kernel, unless there is an answer that was not used yet.
void DeviceEngine::LookAtSms(uint64_t at_ns) {
  if (ready_.empty() || room_.place != kNoPlace) return;
  Work* first = ready_.first;
  if (first->sms > sms_) first->sms = static_cast<uint16_t>(sms_);
  const uint64_t length_ns = first->meets.ranks != 0 ? kNever : first->duration_ns;
  AskForSms(sharer_, {at_ns, first->sms, length_ns}, &room_);
  if (!room_.is_earlier) asked_ = first;
}

void DeviceEngine::Start(Work* work, uint64_t at_ns) {
  work->state = WorkState::kRunning;
  work->start_ns = kNever;
  work->remaining_ns = IsPausing(*work) ? work->pause_ns : work->duration_ns;
  running_.PushBack(work);
  if (IsPausing(*work)) return;
  sms_used_ += work->sms;
  if (work->meets.ranks != 0) Arrive(work, at_ns);
}

// From now on it waits for room among the SMs.
void DeviceEngine::EndPause(Work* work) {
  work->pause_ns = 0;
  work->state = WorkState::kReady;
  work->ready_ns = progressed_ns_;
  ready_.PushReady(work);
}

void DeviceEngine::Arrive(Work* work, uint64_t at_ns) {
  Meetings* own = &meetings_->of[work->meets.group][work->meets.rank];
  work->meeting = own->count.load(std::memory_order_relaxed);
  own->began_ns[work->meeting % kKeptMeetings].store(at_ns, std::memory_order_relaxed);
  own->count.store(work->meeting + 1, std::memory_order_release);
}

// A counterpart may be another process's, which says so a little later: the end is where it would
// have been, or now.
void DeviceEngine::Meet() {
  for (Work* work = running_.first; work != nullptr; work = work->next) {
    if (!IsAwaiting(*work)) continue;
    uint64_t last_ns = 0;
    bool all_began = true;
    for (uint8_t i = 0; i < work->meets.ranks; ++i) {
      const Meetings& other = meetings_->of[work->meets.group][i];
      all_began &= other.count.load(std::memory_order_acquire) > work->meeting;
      const uint64_t began_ns =
          other.began_ns[work->meeting % kKeptMeetings].load(std::memory_order_relaxed);
      if (began_ns > last_ns) last_ns = began_ns;
    }
    if (!all_began) continue;
    const uint64_t end_ns = last_ns + work->duration_ns;
    work->has_met = true;
    work->remaining_ns = end_ns > progressed_ns_ ? end_ns - progressed_ns_ : 0;
    backlog_ns_ += work->remaining_ns - work->duration_ns;
    if (IsShared()) EndPlace(sharer_, work->place, progressed_ns_ + work->remaining_ns);
  }
}

bool DeviceEngine::awaits_others() const {
  for (const Work* work = running_.first; work != nullptr; work = work->next) {
    if (IsAwaiting(*work)) return true;
  }
  return false;
}

uint64_t DeviceEngine::NextStopNs() const {
  const uint64_t stop_ns = NextOwnStopNs();
  return room_.place != kNoPlace && room_.start_ns < stop_ns ? room_.start_ns : stop_ns;
}

uint64_t DeviceEngine::NextOwnStopNs() const {
  if (running_.empty() || !HasTurn()) return kNever;
  const Turn& turn = answer_.turns[0];
  if (!is_on_) return turn.start_ns;
  uint64_t least_ns = kNever;
  for (const Work* work = running_.first; work != nullptr; work = work->next) {
    if (!IsAwaiting(*work) && work->remaining_ns < least_ns) least_ns = work->remaining_ns;
  }
  const uint64_t left_ns = turn.end_ns - progressed_ns_;
  return least_ns == kNever && turn.end_ns == kNever
             ? kNever
             : progressed_ns_ + (least_ns < left_ns ? least_ns : left_ns);
}

uint64_t DeviceEngine::NextTurnNs() const {
  if (IsShared()) return asked_ != nullptr ? room_.forecast_ns : kNever;
  return running_.empty() || HasTurn() ? kNever : answer_.forecast_ns;
}

void DeviceEngine::ProgressTo(uint64_t at_ns) {
  if (running_.empty() || !HasTurn()) return;
  const Turn turn = answer_.turns[0];
  if (at_ns < (is_on_ ? progressed_ns_ : turn.start_ns)) return;
  if (!is_on_) progressed_ns_ = turn.start_ns;
  is_on_ = true;
  Run((at_ns < turn.end_ns ? at_ns : turn.end_ns) - progressed_ns_);
  if (at_ns < turn.end_ns) return;
  is_on_ = false;
  ++passed_turns_;
  --answer_.count;
  for (uint32_t i = 0; i < answer_.count; ++i) answer_.turns[i] = answer_.turns[i + 1];
}

void DeviceEngine::Run(uint64_t ran_ns) {
  const uint64_t from_ns = progressed_ns_;
  bool is_busy = false;
  progressed_ns_ += ran_ns;
  for (Work* work = running_.first; work != nullptr; work = work->next) {
    if (work->start_ns == kNever) work->start_ns = from_ns;
    is_busy |= work->engine == Engine::kCompute && !IsPausing(*work);
    if (IsAwaiting(*work)) continue;
    work->remaining_ns -= ran_ns;
    backlog_ns_ -= ran_ns;
  }
  if (is_busy && ran_ns != 0 && observer_ != nullptr) {
    observer_(device_index_, from_ns, progressed_ns_);
  }
}

// What has begun and has nothing left: what waits for a turn has not begun, however short it is.
Work* DeviceEngine::TakeFinished() {
  for (Work *work = running_.first, *next = nullptr; work != nullptr; work = next) {
    next = work->next;
    if (work->start_ns == kNever || work->remaining_ns != 0 || IsAwaiting(*work)) continue;
    running_.Remove(work);
    if (IsPausing(*work)) {
      EndPause(work);
      continue;
    }
    sms_used_ -= work->sms;
    if (work->engine == Engine::kCompute) --pending_kernels_;
    return work;
  }
  return nullptr;
}

// Tells the others what this process wants from here on. That may be too much, where kernels run
// side by side or wait for a copy between them: it leaves when it has nothing to do.
void DeviceEngine::LookAtTurns(uint64_t at_ns) {
  if (IsShared()) {
    LookAtSms(at_ns);
    is_on_ = true;
    answer_.count = 1;
    answer_.turns[0] = {progressed_ns_, kNever};
    return;
  }
  if (!running_.empty()) {
    const uint64_t busy_ns = awaits_others() ? kNever : backlog_ns_;
    AskForTurns(taker_, {at_ns, progressed_ns_, busy_ns, passed_turns_}, &answer_);
    passed_turns_ = 0;
    is_known_ = true;
    is_on_ = is_on_ && HasTurn() && answer_.turns[0].start_ns <= progressed_ns_;
  } else if (is_known_) {
    LeaveTurns(taker_, at_ns);
    is_known_ = false;
    is_on_ = false;
    passed_turns_ = 0;
    answer_.count = 0;
  }
}

}  // namespace sim
