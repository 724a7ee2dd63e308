// link: state
// A container that publishes its notice and reads its neighbours', system call by system call: what
// others see wherever it is killed, what it touches of theirs, and what looking costs. Counted,
// never timed.
//
//   notice_steps publish | damaged | own_file | cost
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <string>
#include <vector>

#include "base/tuning.h"
#include "core_world.h"
#include "state/notice_board.h"
#include "state/owner.h"

namespace {

using namespace coretest;  // NOLINT(google-build-using-namespace): a test program's own helpers

using CallInfo = __ptrace_syscall_info;

constexpr uint64_t kDevice = 0xd1;
constexpr uint64_t kPublisher = 0xa1;
constexpr uint64_t kReader = 0xa2;
constexpr uint64_t kTimesNs = 7;  // of what a published notice holds, so that a torn one shows

class Folder {
 public:
  Folder() { CHECK(mkdtemp(path_) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const char* path() const { return path_; }
  size_t files() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  char path_[64] = "/dev/shm/gpufence-notices-XXXXXX";
};

// ---- a traced child ----

template <typename Body>
pid_t StartTraced(Body body) {
  const pid_t child = InChild([&] {
    CHECK(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
    raise(SIGSTOP);
    body();
  });
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
  CHECK(ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD) == 0);
  return child;
}

// To the begin or the end of its next system call. False: it came to its end.
bool NextStop(pid_t child, CallInfo* info) {
  int status = 0;
  do {
    CHECK(ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      CHECK_EQ(WEXITSTATUS(status), 0);
      return false;
    }
    CHECK(WIFSTOPPED(status));
  } while (WSTOPSIG(status) != (SIGTRAP | 0x80));
  CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof *info, info) > 0);
  return true;
}

std::string TextIn(pid_t child, uint64_t address) {
  char text[512] = "";
  iovec here = {text, sizeof text - 1};
  iovec there = {reinterpret_cast<void*>(address), sizeof text - 1};
  // A page behind the text may not be there.
  while (there.iov_len > 16 && process_vm_readv(child, &here, 1, &there, 1, 0) < 0) {
    there.iov_len /= 2;
  }
  return text;
}

// ---- publishing ----

NoticeBoard* MustOpen(const char* folder, uint64_t author) {
  char why[200] = "";
  NoticeBoard* board = NoticeBoard::Open(folder, kDevice, author, why, sizeof why);
  CHECK(board != nullptr);
  return board;
}

Notice Said(uint64_t number) {
  Notice notice = {};
  notice.began_us = number;
  notice.wants_ns = number * kTimesNs;
  notice.charged_ns = number * kTimesNs * kTimesNs;
  return notice;
}

// A neighbour of the one that is killed.
class Reader {
 public:
  explicit Reader(const char* folder) : board_(MustOpen(folder, kReader)) {}
  ~Reader() { NoticeBoard::Close(board_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // The number of what the publisher said last, or 0: nothing whole is there.
  uint64_t Look() {
    now_ns_ += 2 * kSecond;
    board_->LookAround(now_ns_, [](void*, uint64_t) { return uint32_t{1}; }, nullptr);
    Notice notice;
    if (board_->AuthorAt(1) != kPublisher || !board_->Read(1, &notice)) return 0;
    CHECK_EQ(notice.wants_ns, notice.began_us * kTimesNs);
    CHECK_EQ(notice.charged_ns, notice.wants_ns * kTimesNs);
    return notice.began_us;
  }
  bool SeesItLive() { return board_->Lives(1, now_ns_ += kSecond); }

 private:
  NoticeBoard* board_;
  uint64_t now_ns_ = kBegin;
};

// True when there was a stop of that number.
bool KillAt(uint64_t stop) {
  const Folder folder;
  Reader reader(folder.path());
  const pid_t child = StartTraced([&] {
    NoticeBoard* board = MustOpen(folder.path(), kPublisher);
    for (uint64_t number = 1; number <= 3; ++number) board->Post(Said(number));
  });
  CallInfo info = {};
  for (uint64_t i = 0; i < stop; ++i) {
    if (NextStop(child, &info)) continue;
    CHECK(!reader.SeesItLive());
    return false;
  }
  CHECK(reader.Look() <= 3);
  kill(child, SIGKILL);
  CHECK(waitpid(child, nullptr, 0) == child);

  CHECK(!reader.SeesItLive());
  reader.Look();
  CHECK(!reader.SeesItLive());
  // What was never whole may lie there; it is taken by whoever comes next under the name.
  CHECK(folder.files() <= 2);
  NoticeBoard* again = MustOpen(folder.path(), kPublisher);
  again->Post(Said(9));
  CHECK_EQ(reader.Look(), 9);
  CHECK(reader.SeesItLive());
  CHECK_EQ(folder.files(), 2);
  NoticeBoard::Close(again);
  return true;
}

void Publish() {
  uint64_t stop = 0;
  while (KillAt(stop)) ++stop;
  CHECK(stop > 10);
}

// A living author's notice is read only if every part of it is as it must be.
void Damaged() {
  const Folder folder;
  Reader reader(folder.path());
  NoticeBoard* board = MustOpen(folder.path(), kPublisher);
  board->Post(Said(5));
  CHECK_EQ(reader.Look(), 5);
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().string().ends_with("a1")) path = entry.path().string();
  }
  const int fd = open(path.c_str(), O_RDWR);
  Notice sound = {};
  CHECK(fd >= 0 && pread(fd, &sound, sizeof sound, 0) == sizeof sound);
  const auto is_read = [&](auto change, bool checks) {
    Notice changed = sound;
    change(&changed);
    if (checks) changed.check = CheckOf(changed);
    CHECK(pwrite(fd, &changed, sizeof changed, 0) == sizeof changed);
    return reader.Look() != 0;
  };
  CHECK(is_read([](Notice*) {}, true));
  CHECK(!is_read([](Notice* notice) { ++notice->magic; }, true));
  CHECK(!is_read([](Notice* notice) { ++notice->author; }, true));
  CHECK(!is_read([](Notice* notice) { ++notice->device; }, true));
  CHECK(!is_read([](Notice* notice) { ++notice->check; }, false));
  CHECK(!is_read([](Notice* notice) { ++notice->shares; }, false));
  CHECK(is_read([](Notice*) {}, false));
  CHECK(ftruncate(fd, sizeof sound - 1) == 0);
  CHECK_EQ(reader.Look(), 0);
  close(fd);
  NoticeBoard::Close(board);
}

// ---- neighbours ----

// Files of containers that say that they wait for the GPU. The dead ones nobody holds.
class Neighbours {
 public:
  // Beside the one notice that is there, and named as that is but for the author.
  Neighbours(const char* folder, uint64_t first, size_t count, bool alive) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const int fd = open(entry.path().c_str(), O_RDONLY);
      Notice notice = {};
      if (pread(fd, &notice, sizeof notice, 0) == sizeof notice && notice_.magic == 0) {
        notice_ = notice;
        stem_ = entry.path().string();
        stem_.resize(stem_.size() - 16);
      }
      close(fd);
    }
    CHECK(notice_.magic == kNoticeMagic);
    for (uint64_t author = first; author < first + count; ++author) Add(author, alive);
  }
  ~Neighbours() {
    for (const int fd : living_) close(fd);
  }
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  const std::vector<std::string>& paths() const { return paths_; }

 private:
  void Add(uint64_t author, bool alive) {
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(author));
    paths_.push_back(stem_ + digits);
    const int fd = open(paths_.back().c_str(), O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0 && fchmod(fd, 0644) == 0);
    notice_.author = author;
    notice_.wants_ns = notice_.active_ns = notice_.beat_ns = kBegin;
    notice_.check = CheckOf(notice_);
    CHECK(pwrite(fd, &notice_, sizeof notice_, 0) == sizeof notice_);
    if (!alive) {
      close(fd);
      return;
    }
    CHECK(SetLock(fd, 0, F_RDLCK));
    living_.push_back(fd);
  }

  Notice notice_ = {};
  std::string stem_;
  std::vector<std::string> paths_;
  std::vector<int> living_;
};

std::string Content(const std::string& path) {
  char bytes[sizeof(Notice) + 1] = "";
  const int fd = open(path.c_str(), O_RDONLY);
  CHECK(fd >= 0);
  const ssize_t got = read(fd, bytes, sizeof bytes);
  close(fd);
  return {bytes, static_cast<size_t>(got)};
}

// A container with one process, and its ticks.
class Watched {
 public:
  Watched() : world_(1) {
    world_.AddTenant(50);
    world_.AddProcess(0, {.kernel_ns = kMs});
    now_ns_ = world_.now_ns();
  }
  const char* node() const { return world_.node(); }
  void Tick() {
    now_ns_ += kTuning.tick_ns;
    CoreSeat& seat = world_.process(0).seat;
    seat.Beat(now_ns_, false);
    seat.WantTurn(now_ns_);
    seat.MoveTurn(now_ns_);
  }

 private:
  World world_;
  uint64_t now_ns_ = 0;
};

// What a file is opened with, so that it may be changed.
bool MayChange(uint64_t flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

// Of all in the folder a container changes its own notice alone, and takes away those of the dead.
void OwnFile() {
  constexpr size_t kLiving = 5;
  constexpr uint64_t kDead = 0xd000;
  int told[2];
  CHECK(pipe(told) == 0);
  const pid_t child = InChild([&] {
    Watched container;
    const std::string own = std::filesystem::directory_iterator(container.node())->path();
    Neighbours living(container.node(), 0x1000, kLiving, true);
    Neighbours dead(container.node(), kDead, 3, false);
    std::vector<std::string> before;
    for (const std::string& path : living.paths()) before.push_back(Content(path));
    CHECK(write(told[1], own.data(), own.size()) > 0);
    CHECK(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
    raise(SIGSTOP);
    for (int tick = 0; tick < 5'000; ++tick) {
      container.Tick();
      // Somebody takes its name away, and it takes that back.
      if (tick == 100) unlink(own.c_str());
    }
    getppid();
    for (size_t i = 0; i < kLiving; ++i) CHECK(Content(living.paths()[i]) == before[i]);
    for (const std::string& path : dead.paths()) CHECK(access(path.c_str(), F_OK) != 0);
    CHECK(access(own.c_str(), F_OK) == 0);
  });
  char text[512] = "";
  CHECK(read(told[0], text, sizeof text - 1) > 0);
  const std::string own_name = strrchr(text, '/') + 1;
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
  CHECK(ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD) == 0);
  CallInfo info = {};
  int changes = 0;
  while (NextStop(child, &info)) {
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    const uint64_t call = info.entry.nr;
    if (call == SYS_getppid) break;
    const std::string path = call == SYS_openat || call == SYS_unlinkat
                                 ? TextIn(child, info.entry.args[1])
                                 : std::string();
    if (call == SYS_openat && MayChange(info.entry.args[2])) {
      CHECK(path.substr(path.rfind('/') + 1) == own_name);
      ++changes;
    }
    if (call == SYS_unlinkat) {
      const std::string author = path.substr(path.size() - 16);
      CHECK(strtoull(author.c_str(), nullptr, 16) - kDead < 3);
    }
    CHECK(call != SYS_renameat2 && call != SYS_ftruncate && call != SYS_truncate);
  }
  CHECK(changes > 0);
  CHECK(ptrace(PTRACE_DETACH, child, nullptr, nullptr) == 0);
  CHECK_EQ(StatusOf(child), 0);
}

// ---- what it costs ----

struct Cost {
  uint64_t mean = 0;   // system calls of a tick
  uint64_t idle = 0;   // the most of a tick that does not read the folder
  uint64_t scan = 0;   // ... and of one that does
  uint64_t opens = 0;  // the most files opened in one
  uint64_t scans = 0;  // ticks that read the folder
};

constexpr int kTicks = 1'000;  // half a second

// Beside so many containers, and files that are no notices.
void LookAround(size_t living, size_t others) {
  Watched container;
  const Neighbours neighbours(container.node(), 0x1000, living, true);
  for (size_t i = 0; i < others; ++i) {
    const std::string path = std::string(container.node()) + "/file-" + std::to_string(i);
    close(open(path.c_str(), O_RDWR | O_CREAT, 0644));
  }
  // A folder that changed just now is read again soon.
  usleep(50'000);
  for (int tick = 0; tick < kTicks; ++tick) {
    getppid();  // tells the ticks apart
    container.Tick();
  }
  getppid();
  // Those that live keep their files, also where there was no place for them.
  for (const std::string& path : neighbours.paths()) CHECK(access(path.c_str(), F_OK) == 0);
}

Cost CostBeside(size_t living, size_t others) {
  const pid_t child = StartTraced([&] { LookAround(living, others); });
  Cost cost;
  Cost now;  // of this tick
  int tick = -1;
  CallInfo info = {};
  while (tick < kTicks && NextStop(child, &info)) {
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    if (info.entry.nr != SYS_getppid) {
      ++now.mean;
      now.opens += info.entry.nr == SYS_openat ? 1 : 0;
      now.scans |= info.entry.nr == SYS_getdents64 ? 1 : 0;
      continue;
    }
    if (tick++ >= 0) {
      uint64_t* most = now.scans != 0 ? &cost.scan : &cost.idle;
      *most = std::max(*most, now.mean);
      cost.mean += now.mean;
      cost.opens = std::max(cost.opens, now.opens);
      cost.scans += now.scans;
    }
    now = {};
  }
  cost.mean /= kTicks;
  CHECK_EQ(tick, kTicks);
  CHECK(ptrace(PTRACE_DETACH, child, nullptr, nullptr) == 0);
  CHECK_EQ(StatusOf(child), 0);
  return cost;
}

void AtMost(uint64_t count, uint64_t most, const char* what) {
  if (count <= most) return;
  fprintf(stderr, "%s: %llu, more than %llu\n", what, static_cast<unsigned long long>(count),
          static_cast<unsigned long long>(most));
  _exit(9);
}

// However many there are: as many places as there are, and so many files opened at a time.
void Costs() {
  constexpr uint64_t kOwnCalls = 16;
  constexpr uint64_t kOpens = 256;
  constexpr uint64_t kPlaces = NoticeBoard::kMost;
  for (const auto& [living, others] : {std::pair<size_t, size_t>{200, 0}, {400, 2'000}}) {
    const Cost cost = CostBeside(living, others);
    // Two to read each, and four now and then to see that it lives.
    AtMost(cost.mean, kOwnCalls + 3 * kPlaces, "calls of a tick in the mean");
    AtMost(cost.idle, kOwnCalls + 6 * kPlaces, "calls of a tick");
    AtMost(cost.scan, kOwnCalls + 6 * kPlaces + 6 * kOpens, "calls of a tick that looks around");
    AtMost(cost.opens, kOpens + 1, "files opened in a tick");
    AtMost(cost.scans, 1, "ticks in half a second that looked around");
  }
}

constexpr Case kCases[] = {
    {"publish", Publish}, {"damaged", Damaged}, {"own_file", OwnFile}, {"cost", Costs}};

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? RunCase(kCases, argv[1]) : 2; }
