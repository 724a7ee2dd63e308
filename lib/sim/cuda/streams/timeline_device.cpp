// A process's share of one compute engine: which kernels run side by side, and in whose turn.
// Must not know: what waits for whom, threads, clocks.
#include "cuda/streams/timeline_engine.h"

namespace sim {

namespace {

bool IsAwaiting(const Work& work) { return work.meets.ranks != 0 && !work.has_met; }

}  // namespace

void DeviceEngine::Attach(DeviceTimeline* shared, MeetingTable* meetings, uint32_t owner,
                          uint32_t sms, int device_index, BusyObserver observer) {
  shared_ = shared;
  meetings_ = meetings;
  owner_ = owner;
  sms_ = sms;
  device_index_ = device_index;
  observer_ = observer;
}

void DeviceEngine::Announce(const Work& work) {
  backlog_ns_ += work.duration_ns;
  ++pending_kernels_;
}

// In order: a kernel that does not fit holds back those behind it, as the hardware's queue does.
void DeviceEngine::StartReady(uint64_t at_ns) {
  while (!ready_.empty()) {
    Work* work = ready_.first;
    const uint32_t wanted = work->sms < sms_ ? work->sms : sms_;
    if (!running_.empty() && sms_used_ + wanted > sms_) break;

    if (running_.empty()) progressed_ns_ = at_ns;
    ready_.PopFirst();
    work->sms = static_cast<uint16_t>(wanted);
    work->state = WorkState::kRunning;
    work->start_ns = kNever;
    work->remaining_ns = work->duration_ns;
    sms_used_ += wanted;
    running_.PushBack(work);
    if (work->meets.ranks != 0) Arrive(work, at_ns);
  }
  if (!running_.empty()) KeepTurn();
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
  }
}

bool DeviceEngine::awaits_others() const {
  for (const Work* work = running_.first; work != nullptr; work = work->next) {
    if (IsAwaiting(*work)) return true;
  }
  return false;
}

uint64_t DeviceEngine::NextStopNs() const {
  if (running_.empty()) return kNever;
  const Turn& turn = turns_[0];
  if (progressed_ns_ < turn.start_ns) return turn.start_ns;
  uint64_t least_ns = kNever;
  for (const Work* work = running_.first; work != nullptr; work = work->next) {
    if (!IsAwaiting(*work) && work->remaining_ns < least_ns) least_ns = work->remaining_ns;
  }
  const uint64_t left_ns = turn.end_ns - progressed_ns_;
  return progressed_ns_ + (least_ns < left_ns ? least_ns : left_ns);
}

void DeviceEngine::ProgressTo(uint64_t at_ns) {
  if (running_.empty() || at_ns <= progressed_ns_) return;
  const Turn& turn = turns_[0];
  const uint64_t from_ns = progressed_ns_ > turn.start_ns ? progressed_ns_ : turn.start_ns;
  progressed_ns_ = at_ns;
  if (at_ns < from_ns) return;  // waiting for the turn

  const uint64_t ran_ns = at_ns - from_ns;
  for (Work* work = running_.first; work != nullptr; work = work->next) {
    if (work->start_ns == kNever) work->start_ns = from_ns;
    if (IsAwaiting(*work)) continue;
    work->remaining_ns -= ran_ns;
    backlog_ns_ -= ran_ns;
  }
  if (ran_ns != 0 && observer_ != nullptr) observer_(device_index_, from_ns, at_ns);
}

Work* DeviceEngine::TakeFinished() {
  for (Work* work = running_.first; work != nullptr; work = work->next) {
    if (work->remaining_ns != 0 || IsAwaiting(*work)) continue;
    running_.Remove(work);
    sms_used_ -= work->sms;
    --pending_kernels_;
    return work;
  }
  return nullptr;
}

void DeviceEngine::Settle(uint64_t now_ns) {
  if (running_.empty()) ReturnTurns();
  while (turn_count_ < kMaxTurns && NextReservationNs() <= now_ns) {
    Reserve(turns_[turn_count_ - 1].end_ns, backlog_ns_ - ReservedNs());
  }
}

// A process queues for its next turn when its last one begins: early enough that it misses none,
// late enough that a newcomer waits for one turn of everybody else at most.
uint64_t DeviceEngine::NextReservationNs() const {
  if (running_.empty() || turn_count_ == kMaxTurns || ReservedNs() >= backlog_ns_) return kNever;
  return turns_[turn_count_ - 1].end_ns - kSliceNs;
}

// Drops turns that are over; what runs is never without one, and a turn that is asked for late is
// asked for from the instant at which it was due.
void DeviceEngine::KeepTurn() {
  int over = 0;
  while (over < turn_count_ && turns_[over].end_ns <= progressed_ns_) ++over;
  turn_count_ -= over;
  for (int i = 0; over != 0 && i < turn_count_; ++i) turns_[i] = turns_[i + over];
  if (turn_count_ == 0) Reserve(progressed_ns_, backlog_ns_);
}

void DeviceEngine::Reserve(uint64_t ready_ns, uint64_t length_ns) {
  if (length_ns > kSliceNs) length_ns = kSliceNs;
  const Turn turn = ReserveTurn(*shared_, owner_, ready_ns, length_ns);
  Turn* last = turn_count_ != 0 ? &turns_[turn_count_ - 1] : nullptr;
  if (last != nullptr && last->end_ns == turn.start_ns) {
    last->end_ns = turn.end_ns;
  } else {
    turns_[turn_count_++] = turn;
  }
}

void DeviceEngine::ReturnTurns() {
  while (turn_count_ != 0) {
    const Turn& last = turns_[turn_count_ - 1];
    const uint64_t from_ns = progressed_ns_ > last.start_ns ? progressed_ns_ : last.start_ns;
    if (!ReturnTurn(*shared_, last, from_ns)) return;
    --turn_count_;
  }
}

uint64_t DeviceEngine::ReservedNs() const {
  uint64_t total_ns = 0;
  for (int i = 0; i < turn_count_; ++i) {
    const Turn& turn = turns_[i];
    const uint64_t from_ns = progressed_ns_ > turn.start_ns ? progressed_ns_ : turn.start_ns;
    if (turn.end_ns > from_ns) total_ns += turn.end_ns - from_ns;
  }
  return total_ns;
}

}  // namespace sim
