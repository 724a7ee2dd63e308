// link: state
// One promise a run about files that a sweeper removes (tools/gpufence/container/leftovers.py)
// while others come: nobody is left alone in a file that has lost its name.
//
//   state_removal NAME FOLDER
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "state/shared_file.h"
#include "state/time_file.h"
#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr int kComers = 2;
constexpr int kJoinsEach = 150;
constexpr int kNotTheNamed = 9;
const char* folder = nullptr;
// What to do behind each link() and close() of this process; empty for nothing.
std::function<void()> behind_call;

void DoBehindCall() {
  const std::function<void()> now = std::move(behind_call);
  behind_call = nullptr;
  if (now) now();
  behind_call = now;
}

// As the sweeper does it: every lock that there may be, and the name still the file's.
class Sweeper {
 public:
  explicit Sweeper(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = off_t{1} << 40;
    struct stat named = {};
    may_remove_ = fd_ >= 0 && fcntl(fd_, F_OFD_SETLK, &lock) == 0 &&
                  stat(path.c_str(), &named) == 0 && IsSameFile(fd_, named.st_dev, named.st_ino);
  }
  ~Sweeper() { close(fd_); }
  Sweeper(const Sweeper&) = delete;
  Sweeper& operator=(const Sweeper&) = delete;

  bool may_remove() const { return may_remove_; }
  void Remove() const { CHECK(unlink(path_.c_str()) == 0); }

 private:
  std::string path_;
  int fd_;
  bool may_remove_;
};

std::string RegionPath() {
  return std::string(folder) + "/gpufence-test.v" + std::to_string(kRegionVersion);
}

bool MayRemove() { return Sweeper(RegionPath()).may_remove(); }

bool IsNamed(const std::string& path, uint64_t inode) {
  struct stat named = {};
  return stat(path.c_str(), &named) == 0 && named.st_ino == inode;
}

// Left by a process that is gone.
void LeaveRegion() {
  CHECK_EQ(StatusOf(InChild([] { MustOpen(folder); })), 0);
}

// From the moment somebody opened it until the last one is gone.
void KeptWhileUsed() {
  RegionFile file = MustOpen(folder);
  CHECK(!MayRemove());
  CHECK(ClaimSlot(file) != kNoSlot);
  CHECK(!MayRemove());
  RegionFile seen;
  CHECK(FindRegion(PlacesIn(folder), &seen));
  CloseRegion(&file);
  CHECK(!MayRemove());
  CloseRegion(&seen);
  CHECK(MayRemove());
}

// Whoever has a slot needs nothing else: as many as like may look for a place meanwhile.
void HeldBySlotAlone() {
  RegionFile file = MustOpen(folder);
  CHECK(SetLock(file.fd, kComingByte, F_RDLCK));
  CHECK(ClaimSlot(file) != kNoSlot);
  const int other = open(RegionPath().c_str(), O_RDWR | O_CLOEXEC);
  CHECK(SetLock(other, kComingByte, F_WRLCK));
}

bool HasMapped(pid_t child, const std::string& path) {
  FILE* maps = fopen(("/proc/" + std::to_string(child) + "/maps").c_str(), "r");
  CHECK(maps != nullptr);
  char line[512];
  bool found = false;
  while (fgets(line, sizeof line, maps) != nullptr) found = found || strstr(line, path.c_str());
  fclose(maps);
  return found;
}

// Between any two steps of whoever makes it: the first file that was made is the one to stay.
void HeldFromItsName() {
  int looked = 0;
  bool could_be_removed = false;
  behind_call = [&] {
    if (access(RegionPath().c_str(), F_OK) != 0) return;
    ++looked;
    could_be_removed = could_be_removed || MayRemove();
  };
  const RegionFile file = MustOpen(folder);
  behind_call = nullptr;
  CHECK(IsNamed(RegionPath(), file.inode));
  CHECK(looked >= 2);
  CHECK(!could_be_removed);
}

// The name goes after it was opened and before there is a place: the newcomer finds that out.
void OpenedAnew() {
  LeaveRegion();
  // Forked before there is a lock that it would inherit.
  const pid_t child = InChild([] {
    const int file = open(RegionPath().c_str(), O_RDWR | O_CLOEXEC);
    while (!IsLocked(file, kComingByte)) usleep(1000);
    close(file);
    const RegionFile own = MustOpen(folder);
    CHECK(IsNamed(RegionPath(), own.inode));
  });
  {
    const Sweeper sweeper(RegionPath());
    CHECK(sweeper.may_remove());
    while (!HasMapped(child, RegionPath())) usleep(1000);
    sweeper.Remove();
  }
  CHECK_EQ(StatusOf(child), 0);
}

// Nobody goes into a file that somebody, who was stopped, may remove any time.
void StoppedSweeper() {
  LeaveRegion();
  const Sweeper sweeper(RegionPath());
  RegionFile file;
  char why[400] = "";
  CHECK(!OpenRegion(PlacesIn(folder), &file, why, sizeof why));
  CHECK(strstr(why, strerror(EBUSY)) != nullptr);
  CHECK(strstr(why, RegionPath().c_str()) != nullptr);
  CHECK(!FindRegion(PlacesIn(folder), &file));
}

void JoinRegion() {
  RegionFile file = MustOpen(folder);
  CHECK(ClaimSlot(file) != kNoSlot);
  if (!IsNamed(RegionPath(), file.inode)) _exit(kNotTheNamed);
  usleep(100);
  if (!IsNamed(RegionPath(), file.inode)) _exit(kNotTheNamed);
  CloseRegion(&file);
}

// The folder's only time file; "" while there is none.
std::string CorePath() {
  glob_t found = {};
  std::string path;
  if (glob((std::string(folder) + "/*.cores*[0-9a-f]").c_str(), 0, nullptr, &found) == 0) {
    path = found.gl_pathv[0];
  }
  globfree(&found);
  return path;
}

// A process has one time file for all its life.
void JoinCores() {
  const pid_t child = InChild([] {
    TimeFile file;
    char why[400] = "";
    CHECK(OpenTimeFile(PlacesIn(folder), &file, why, sizeof why));
    if (!IsNamed(CorePath(), file.inode)) _exit(kNotTheNamed);
  });
  const int status = StatusOf(child);
  if (status != 0) _exit(status);
}

// Many come and go while sweepers remove what they may: whoever has a place has it in the file that
// the next one finds. They go on until something was swept, however seldom the sweepers may run.
template <typename Join>
void AmongSweepers(int comers, int joins_each, Join join, std::string (*path)()) {
  auto* swept = static_cast<std::atomic<int>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* ended = swept + 1;
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int i = 0; i < comers; ++i) {
    children.push_back(InChild([=] {
      for (int n = 0; n < joins_each || swept->load() == 0; ++n) join();
    }));
  }
  for (int i = 0; i < 2; ++i) {
    children.push_back(InChild([=] {
      while (ended->load() == 0 && getppid() == parent) {
        usleep(50);  // else nobody else runs where there are few processors
        const Sweeper sweeper(path());
        if (!sweeper.may_remove()) continue;
        sweeper.Remove();
        swept->fetch_add(1);
      }
    }));
  }
  for (int i = 0; i < comers; ++i) CHECK_EQ(StatusOf(children[static_cast<size_t>(i)]), 0);
  ended->store(1);
  for (size_t i = static_cast<size_t>(comers); i < children.size(); ++i) {
    CHECK_EQ(StatusOf(children[i]), 0);
  }
}

void RegionsAmongSweepers() { AmongSweepers(kComers, kJoinsEach, JoinRegion, RegionPath); }

void CoresAmongSweepers() { AmongSweepers(3, 40, JoinCores, CorePath); }

constexpr Case kCases[] = {
    {"kept_while_used", KeptWhileUsed},           {"held_by_slot_alone", HeldBySlotAlone},
    {"held_from_its_name", HeldFromItsName},      {"opened_anew", OpenedAnew},
    {"stopped_sweeper", StoppedSweeper},          {"regions_among_sweepers", RegionsAmongSweepers},
    {"cores_among_sweepers", CoresAmongSweepers},
};

}  // namespace

// In front of libc's own, for what this program links as well.
extern "C" int link(const char* from, const char* to) noexcept {
  const int result = linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
  DoBehindCall();
  return result;
}

extern "C" int close(int fd) {
  const auto result = static_cast<int>(syscall(SYS_close, fd));
  DoBehindCall();
  return result;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
