// link: state
// flags: -pthread
// Processes that reserve and release while some are killed and some are stopped at any instruction.
//
//   state_storm FOLDER PROCESSES ROUNDS SEED
//
// Each process writes down what it surely holds: after a grant, and before giving back. A round
// ends in a roll call: everybody finishes what it is doing and stands still; then the region must
// hold exactly what was written down, and nothing of the dead.
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <atomic>

#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr int kMostProcesses = 64;
constexpr uint64_t kLimitBytes = 256 * kMiB;
constexpr size_t kMostPieces = 64;

// What one process says of itself.
struct Diary {
  std::atomic<uint64_t> sure_bytes;  // after each grant, before each release
  std::atomic<uint64_t> held_bytes;  // exactly what the region must say; written at roll calls
  std::atomic<uint32_t> slot;
  std::atomic<uint32_t> present;  // number of the last roll call it stood still for
  std::atomic<uint64_t> grants;
};

struct Shared {
  std::atomic<uint32_t> roll_call;  // odd: stand still
  std::atomic<uint32_t> deaths;     // raised while somebody's diary is out of date
  Diary diaries[kMostProcesses];
};

Shared* shared = nullptr;
int process_count = 0;

uint64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

void SleepUs(uint64_t us) {
  const timespec pause{0, static_cast<long>(us * 1000)};
  nanosleep(&pause, nullptr);
}

// While nobody died, no moment may show more held than the limit. A sum is of one moment when
// reading everything twice finds the same.
void CheckLimit() {
  uint64_t first[kMostProcesses];
  const uint32_t deaths = shared->deaths.load();
  for (int i = 0; i < process_count; ++i) first[i] = shared->diaries[i].sure_bytes.load();
  uint64_t bytes = 0;
  for (int i = 0; i < process_count; ++i) {
    if (shared->diaries[i].sure_bytes.load() != first[i]) return;
    bytes += first[i];
  }
  if (deaths % 2 == 0 && shared->deaths.load() == deaths) CHECK(bytes <= kLimitBytes);
}

class Worker {
 public:
  Worker(const char* folder, int index, uint64_t seed)
      : member_(NewMember(folder, kLimitBytes)), diary_(&shared->diaries[index]), random_(seed) {
    diary_->slot.store(member_->slot);
  }

  [[noreturn]] void Run() {
    for (;;) {
      if (shared->roll_call.load() % 2 == 1) StandStill();
      if (count_ < kMostPieces && random_.Below(2) == 0) {
        Take();
      } else if (count_ > 0) {
        GiveBack();
      }
    }
  }

 private:
  void Take() {
    const uint64_t bytes = 1 + random_.Below(random_.Below(2) == 0 ? 20 * kMiB : kMiB);
    if (!member_->account.Reserve(Whole(bytes))) return;
    pieces_[count_++] = bytes;
    diary_->sure_bytes.fetch_add(Whole(bytes));
    diary_->grants.fetch_add(1);
    CheckLimit();
  }

  void GiveBack() {
    std::swap(pieces_[random_.Below(count_)], pieces_[count_ - 1]);
    const uint64_t bytes = pieces_[--count_];
    diary_->sure_bytes.fetch_sub(Whole(bytes));
    member_->account.Release(Whole(bytes));
  }

  void StandStill() {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count_; ++i) bytes += Whole(pieces_[i]);
    diary_->held_bytes.store(bytes);
    const uint32_t roll_call = shared->roll_call.load();
    diary_->present.store(roll_call);
    while (shared->roll_call.load() == roll_call) SleepUs(100);
  }

  Member* member_;
  Diary* diary_;
  Random random_;
  uint64_t pieces_[kMostPieces];
  size_t count_ = 0;
};

class Storm {
 public:
  Storm(const char* folder, uint64_t seed)
      : folder_(folder), random_(seed), auditor_(NewMember(folder, kLimitBytes)) {
    for (int i = 0; i < process_count; ++i) Start(i);
  }

  void Round() {
    const uint64_t events = 1 + random_.Below(4);
    for (uint64_t i = 0; i < events; ++i) {
      SleepUs(random_.Below(3000));
      const int index = static_cast<int>(random_.Below(static_cast<uint64_t>(process_count)));
      if (random_.Below(2) == 0) {
        kill(pids_[index], SIGSTOP);
      } else {
        Kill(index);
      }
    }
    CallRoll();
  }

  void Finish() {
    for (int i = 0; i < process_count; ++i) Kill(i, /*again=*/false);
    auditor_->account.Reclaim(Effort::kThorough);
    CHECK_EQ(auditor_->account.UsedBytes(), 0);
  }

  uint64_t kills() const { return kills_; }
  uint64_t grants() const { return grants_; }

 private:
  void Start(int index) {
    const uint64_t seed = random_.Next();
    const pid_t parent = getpid();
    pids_[index] = fork();
    CHECK(pids_[index] >= 0);
    if (pids_[index] != 0) return;
    if (getppid() != parent) _exit(0);
    Worker(folder_, index, seed).Run();
  }

  void Kill(int index, bool again = true) {
    shared->deaths.fetch_add(1);
    kill(pids_[index], SIGKILL);
    int status = 0;
    waitpid(pids_[index], &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    Diary* diary = &shared->diaries[index];
    diary->sure_bytes.store(0);
    diary->present.store(0);
    grants_ += diary->grants.exchange(0);
    ++kills_;
    shared->deaths.fetch_add(1);
    if (again) Start(index);
  }

  void CallRoll() {
    for (int i = 0; i < process_count; ++i) kill(pids_[i], SIGCONT);
    const uint32_t roll_call = shared->roll_call.fetch_add(1) + 1;
    const uint64_t deadline_ms = NowMs() + 30000;
    for (int i = 0; i < process_count; ++i) {
      while (shared->diaries[i].present.load() != roll_call) {
        CHECK(NowMs() < deadline_ms);  // somebody hangs
        int status = 0;
        CHECK(waitpid(pids_[i], &status, WNOHANG) == 0);  // or failed a check of its own
        SleepUs(100);
      }
    }
    Compare();
    shared->roll_call.fetch_add(1);
  }

  void Compare() {
    auditor_->account.Reclaim(Effort::kThorough);
    uint64_t expected = 0;
    for (int i = 0; i < process_count; ++i) {
      const Diary& diary = shared->diaries[i];
      CHECK_EQ(HeldBy(*auditor_, diary.slot.load()), diary.held_bytes.load());
      expected += diary.held_bytes.load();
    }
    // What was being asked for counts too: nothing may be left of it.
    CHECK_EQ(auditor_->account.UsedBytes(), expected);
    CHECK_EQ(LookAtRow(auditor_->file, auditor_->row).used_bytes, expected);
    CHECK(expected <= kLimitBytes);
  }

  const char* folder_;
  Random random_;
  Member* auditor_;
  pid_t pids_[kMostProcesses];
  uint64_t kills_ = 0;
  uint64_t grants_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || (process_count = atoi(argv[2])) > kMostProcesses) return 2;
  shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const uint64_t rounds = strtoull(argv[3], nullptr, 10);
  Storm storm(argv[1], strtoull(argv[4], nullptr, 10));
  for (uint64_t round = 0; round < rounds; ++round) storm.Round();
  storm.Finish();
  printf("{\"rounds\": %llu, \"kills\": %llu, \"grants\": %llu}\n",
         static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(storm.kills()),
         static_cast<unsigned long long>(storm.grants()));
  return 0;
}
