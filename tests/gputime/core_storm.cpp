// link: state
// flags: -pthread
// Real processes that take turns at a device that only sleeps, while some are killed and some are
// stopped at any instruction. Afterwards everybody must get on, and the words must be sane.
//
//   core_storm FOLDER PROCESSES ROUNDS SEED
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <atomic>

#include "base/tuning.h"
#include "policy/core_seat.h"
#include "policy/share.h"
#include "policy/turn.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr int kMostProcesses = 64;
constexpr int kContainers = 8;
constexpr uint64_t kDeadlineMs = 60'000;

struct Diary {
  std::atomic<uint64_t> launches;
};
Diary* diaries = nullptr;
int process_count = 0;

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void SleepUs(uint64_t us) {
  const timespec pause{0, static_cast<long>(us * 1000)};
  nanosleep(&pause, nullptr);
}

CoreSeat* NewSeat(const char* folder, int index) {
  auto* seat = static_cast<CoreSeat*>(MapWipedOnFork(sizeof(CoreSeat)));
  char container[32];
  snprintf(container, sizeof container, "container-%d", index % kContainers);
  char why[400] = "";
  const RegionPlaces own = {{folder}, container};
  if (!seat->Join(folder, own, kUuid, kWholeShare / kContainers, 0, NowNs(), why, sizeof why)) {
    fprintf(stderr, "%s\n", why);
    _exit(8);
  }
  return seat;
}

// The container's words, of which those here say that its queues are deep: it takes turns.
TimeRow* RowOf(const char* folder, int index) {
  char container[32];
  snprintf(container, sizeof container, "container-%d", index % kContainers);
  TimeFile file;
  char why[400];
  CHECK(OpenTimeFile({{folder}, container}, &file, why, sizeof why));
  return &file.region->rows[0];
}

// One try to launch; true when it did.
bool Launch(CoreSeat* seat, TimeRow* row) {
  row->run_ns.store(kTuning.mean_over_ns);
  row->density.store(kWholeDensity);
  if (seat->HeldFor(NowNs()) > 0 || !seat->WantTurn(NowNs())) {
    seat->MoveTurn(NowNs());
    return false;
  }
  const uint64_t begin_ns = NowNs();
  seat->Beat(begin_ns, true);
  const bool launched = seat->HasTurn();
  if (launched) SleepUs(200);
  const uint64_t end_ns = NowNs();
  if (launched) seat->Charge(begin_ns, end_ns, end_ns);
  seat->Beat(end_ns, false);
  seat->MoveTurn(end_ns);
  return launched;
}

[[noreturn]] void Work(const char* folder, int index) {
  CoreSeat* seat = NewSeat(folder, index);
  TimeRow* row = RowOf(folder, index);
  for (;;) {
    if (Launch(seat, row)) {
      diaries[index].launches.fetch_add(1);
    } else {
      SleepUs(3000);
    }
  }
}

class Storm {
 public:
  Storm(const char* folder, uint64_t seed) : folder_(folder), random_(seed) {
    for (int i = 0; i < process_count; ++i) Start(i);
  }

  void Round() {
    const uint64_t events = 1 + random_.Below(12);
    for (uint64_t i = 0; i < events; ++i) {
      SleepUs(random_.Below(8000));
      const int index = static_cast<int>(random_.Below(static_cast<uint64_t>(process_count)));
      if (random_.Below(2) == 0) {
        kill(pids_[index], SIGSTOP);
      } else {
        End(index);
        Start(index);
      }
    }
    // Those who run get on while others are stopped; then all do.
    ExpectProgress(/*of_all=*/false);
    for (int i = 0; i < process_count; ++i) kill(pids_[i], SIGCONT);
    ExpectProgress(/*of_all=*/true);
  }

  void Finish() {
    for (int i = 0; i < process_count; ++i) End(i);
    // One who comes after all are dead has the device as soon as its container's debt is paid, and
    // keeps it as soon as the dead are missed.
    TimeFile file;
    char why[400];
    CHECK(OpenTimeFile({{folder_}, "container-0"}, &file, why, sizeof why));
    CoreSeat* seat = NewSeat(folder_, 0);
    const uint64_t deadline_ns = NowNs() + kDeadlineMs * 1'000'000;
    TimeRow* row = RowOf(folder_, 0);
    while (!Launch(seat, row) || TurnIn(file).tenant != kOwnTenant) {
      CHECK(NowNs() < deadline_ns);
      SleepUs(1000);
    }
    // Places of the dead were taken again.
    CHECK(file.region->header.high_member.load() <= static_cast<uint32_t>(process_count) + 1);
    CHECK(TurnIn(file).began_us <= NowNs() / 1000);
    const CoreTenant& own = file.region->tenants[0][kOwnTenant];
    CHECK(own.key.load() != 0);
    CHECK(own.due_ns.load() <= NowNs() + 10'000'000'000);
  }

  uint64_t kills() const { return kills_; }
  uint64_t launches() const { return launches_; }

 private:
  static Turn TurnIn(const TimeFile& file) { return UnpackTurn(file.region->rows[0].turn.load()); }

  void Start(int index) {
    const pid_t parent = getpid();
    pids_[index] = fork();
    CHECK(pids_[index] >= 0);
    if (pids_[index] != 0) return;
    if (getppid() != parent) _exit(0);
    Work(folder_, index);
  }

  void End(int index) {
    kill(pids_[index], SIGKILL);
    int status = 0;
    waitpid(pids_[index], &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);  // and had failed no check
    ++kills_;
    launches_ += diaries[index].launches.exchange(0);
  }

  // Somebody, or everybody, launches.
  void ExpectProgress(bool of_all) {
    uint64_t before[kMostProcesses];
    for (int i = 0; i < process_count; ++i) before[i] = diaries[i].launches.load();
    const uint64_t deadline_ns = NowNs() + kDeadlineMs * 1'000'000;
    for (;;) {
      int moved = 0;
      for (int i = 0; i < process_count; ++i) moved += diaries[i].launches.load() != before[i];
      if (moved == process_count || (moved > 0 && !of_all)) return;
      CHECK(NowNs() < deadline_ns);  // somebody hangs
      SleepUs(2000);
    }
  }

  const char* folder_;
  Random random_;
  pid_t pids_[kMostProcesses];
  uint64_t kills_ = 0;
  uint64_t launches_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || (process_count = atoi(argv[2])) > kMostProcesses) return 2;
  diaries = static_cast<Diary*>(mmap(nullptr, sizeof(Diary) * kMostProcesses,
                                     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const uint64_t rounds = strtoull(argv[3], nullptr, 10);
  Storm storm(argv[1], strtoull(argv[4], nullptr, 10));
  for (uint64_t round = 0; round < rounds; ++round) storm.Round();
  storm.Finish();
  printf("{\"rounds\": %llu, \"kills\": %llu, \"launches\": %llu}\n",
         static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(storm.kills()),
         static_cast<unsigned long long>(storm.launches()));
  return 0;
}
