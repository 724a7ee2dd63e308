// link: state
// One promise a run about where the region's file is and what may stand in its place.
//
//   state_places NAME FOLDER    status 77: this machine does not allow the case
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <string>

#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 64 * kMiB;
constexpr int kNotAllowed = 77;
constexpr uid_t kOtherUid = 65534;
std::string folder;

std::string PathIn(const std::string& where, uint32_t version = kRegionVersion) {
  return where + "/gpufence-test.v" + std::to_string(version);
}

struct stat StatusOf(const std::string& path) {
  struct stat found = {};
  CHECK(lstat(path.c_str(), &found) == 0);
  return found;
}

// A second folder that everybody may write to, after the one given.
std::string SecondFolder() {
  const std::string second = folder + "/second";
  if (mkdir(second.c_str(), 0700) == 0) CHECK(chmod(second.c_str(), 01777) == 0);
  return second;
}

bool TryOpen(const RegionPlaces& places, RegionFile* file, std::string* why) {
  char text[400] = "";
  const bool opened = OpenRegion(places, file, text, sizeof text);
  *why = text;
  return opened;
}

// Opened in the second folder, because of what stands in the first.
void OpensInSecond() {
  const std::string second = SecondFolder();
  RegionFile file;
  std::string why;
  CHECK(TryOpen({{folder.c_str(), second.c_str()}, "test"}, &file, &why));
  CHECK_EQ(file.inode, StatusOf(PathIn(second)).st_ino);
}

void MustEndWell(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

// The first folder cannot be used: the next one is, by everybody.
void NextFolder() {
  const std::string absent = folder + "/file/below";
  close(open((folder + "/file").c_str(), O_CREAT | O_WRONLY, 0600));
  RegionFile file;
  std::string why;
  CHECK(TryOpen({{absent.c_str(), folder.c_str()}, "test"}, &file, &why));
  CHECK_EQ(file.inode, StatusOf(PathIn(folder)).st_ino);
  RegionFile none;
  CHECK(!TryOpen({{absent.c_str()}, "test"}, &none, &why));
  CHECK(why.find(absent) != std::string::npos);
}

void Neighbours() {
  Member* member = NewMember(folder.c_str(), kLimitBytes);
  CHECK(member->account.Reserve(kLimitBytes));
  RegionFile other;
  std::string why;
  CHECK(TryOpen({{folder.c_str()}, "neighbour"}, &other, &why));
  Account account = {};
  const uint32_t slot = ClaimSlot(other);
  account.Open(other, FindRow(other, kUuid), slot, 0, kLimitBytes, nullptr);
  CHECK(account.Reserve(kLimitBytes));
  CHECK_EQ(member->account.UsedBytes(), kLimitBytes);
}

// An upgrade under running pods: the old library's region stays as it is, byte for byte.
void OlderLayout() {
  const std::string older = PathIn(folder, kRegionVersion - 1);
  const int file = open(older.c_str(), O_RDWR | O_CREAT, 0666);
  CHECK(write(file, "gpfence1 of old", 15) == 15);
  Member* member = NewMember(folder.c_str(), kLimitBytes);
  CHECK(member->account.Reserve(kLimitBytes));
  char content[16] = "";
  CHECK(pread(file, content, sizeof content, 0) == 15);
  CHECK(strcmp(content, "gpfence1 of old") == 0);
}

// A file that not everybody can open is replaced by one that everybody can.
void PrivateFile() {
  close(MustOpen(folder.c_str()).fd);
  const ino_t before = StatusOf(PathIn(folder)).st_ino;
  CHECK(chmod(PathIn(folder).c_str(), 0600) == 0);
  const RegionFile file = MustOpen(folder.c_str());
  CHECK(file.inode != before);
  CHECK_EQ(StatusOf(PathIn(folder)).st_mode & 0777, 0666);
}

// The same where it cannot be removed: both users meet in the next folder, whoever comes first.
void ForeignPrivateFile() {
  const std::string second = SecondFolder();
  close(MustOpen(folder.c_str()).fd);
  CHECK(chmod(PathIn(folder).c_str(), 0600) == 0);
  MustEndWell(InChild([] {
    CHECK(setgid(kOtherUid) == 0 && setuid(kOtherUid) == 0);
    OpensInSecond();
  }));
  OpensInSecond();
}

void DirectoryInPlace() {
  CHECK(mkdir(PathIn(folder).c_str(), 0777) == 0);
  OpensInSecond();
}
// It is not followed.
void LinkInPlace() {
  const std::string target = folder + "/elsewhere";
  CHECK(symlink(target.c_str(), PathIn(folder).c_str()) == 0);
  const RegionFile file = MustOpen(folder.c_str());
  CHECK_EQ(file.inode, StatusOf(PathIn(folder)).st_ino);
  CHECK(access(target.c_str(), F_OK) != 0);
}
// Nobody writes to it or reads from it: opening it must not wait.
void PipeInPlace() {
  CHECK(mkfifo(PathIn(folder).c_str(), 0666) == 0);
  const RegionFile file = MustOpen(folder.c_str());
  CHECK_EQ(file.inode, StatusOf(PathIn(folder)).st_ino);
}

void HardUmask() {
  umask(0777);
  folder += "/made";
  close(MustOpen(folder.c_str()).fd);
  CHECK_EQ(StatusOf(folder).st_mode & 07777, 01777);
  CHECK_EQ(StatusOf(PathIn(folder)).st_mode & 07777, 0666);
}

void FolderIsItsOwners() {
  CHECK(chmod(folder.c_str(), 0750) == 0);
  close(MustOpen(folder.c_str()).fd);
  CHECK_EQ(StatusOf(folder).st_mode & 07777, 0750);
}

// No file may grow: an error where one must be made, no hindrance where one is.
void SmallFiles() {
  const rlimit small = {4096, 4096};
  MustEndWell(InChild([&] {
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    RegionFile file;
    std::string why;
    CHECK(!TryOpen(PlacesIn(folder.c_str()), &file, &why));
    CHECK(why.find(strerror(EFBIG)) != std::string::npos);
  }));
  close(MustOpen(folder.c_str()).fd);
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK(NewMember(folder.c_str(), kLimitBytes)->account.Reserve(kLimitBytes));
}

void FewDescriptors() {
  const int lowest = dup(0);
  const rlimit few = {static_cast<rlim_t>(lowest), static_cast<rlim_t>(lowest)};
  close(lowest);
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  RegionFile file;
  std::string why;
  CHECK(!TryOpen(PlacesIn(folder.c_str()), &file, &why));
  CHECK(why.find(strerror(EMFILE)) != std::string::npos);
  CHECK(access(PathIn(folder).c_str(), F_OK) != 0);
}

void SixtyFourDevices() {
  const RegionFile file = MustOpen(folder.c_str());
  const uint32_t slot = ClaimSlot(file);
  uint8_t uuid[16] = {1};
  for (uint32_t row = 0; row < kMaxDevices; ++row) {
    uuid[1] = static_cast<uint8_t>(row);
    CHECK_EQ(FindRow(file, uuid), row);
    Account account = {};
    account.Open(file, row, slot, 0, kLimitBytes, nullptr);
    CHECK(account.Reserve(kLimitBytes));
    CHECK(!account.Reserve(1));
  }
  CHECK_EQ(FindRow(file, uuid), kMaxDevices - 1);
  uuid[1] = kMaxDevices;
  CHECK_EQ(FindRow(file, uuid), kMaxDevices);
}

// A member in another pid namespace, where it is process 1: an earlier life of the container, or a
// container beside it. `alive` ends when it does.
pid_t StartElsewhere(uint64_t bytes, int* alive) {
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  const pid_t outer = InChild([=] {
    if (unshare(CLONE_NEWPID) != 0) _exit(0);
    const pid_t inner = InChild([=] {
      CHECK(getpid() == 1);
      CHECK(NewMember(folder.c_str(), kLimitBytes)->account.Reserve(bytes));
      pause();
    });
    CHECK(write(pipe_ends[1], &inner, sizeof inner) == sizeof inner);
  });
  close(pipe_ends[1]);
  *alive = pipe_ends[0];
  pid_t inner = 0;
  if (read(*alive, &inner, sizeof inner) != sizeof inner) _exit(kNotAllowed);
  MustEndWell(outer);
  return inner;
}

void OtherPidNamespace() {
  Member* member = NewMember(folder.c_str(), kLimitBytes);
  int alive = -1;
  const pid_t inner = StartElsewhere(48 * kMiB, &alive);
  while (HeldBy(*member, 1) != 48 * kMiB) usleep(1000);
  CHECK(!member->account.Reserve(32 * kMiB));
  CHECK(member->account.Reserve(16 * kMiB));
  kill(inner, SIGKILL);
  char mark = 0;
  CHECK(read(alive, &mark, 1) == 0);
  // The pipe may be closed a moment before the region is.
  for (int i = 0; i < 2000 && !member->account.Reserve(48 * kMiB); ++i) usleep(1000);
  CHECK_EQ(member->account.UsedBytes(), kLimitBytes);
}

// Whoever removes the file takes it from newcomers only.
void RemovedFile() {
  Member* member = NewMember(folder.c_str(), kLimitBytes);
  CHECK(unlink(PathIn(folder).c_str()) == 0);
  CHECK(member->account.Reserve(kLimitBytes));
  CHECK(!member->account.Reserve(1));
  member->account.Release(kLimitBytes);
  CHECK_EQ(member->account.UsedBytes(), 0);
}

constexpr Case kCases[] = {
    {"next_folder", NextFolder},
    {"neighbours", Neighbours},
    {"older_layout", OlderLayout},
    {"private_file", PrivateFile},
    {"foreign_private_file", ForeignPrivateFile},
    {"directory_in_place", DirectoryInPlace},
    {"link_in_place", LinkInPlace},
    {"pipe_in_place", PipeInPlace},
    {"hard_umask", HardUmask},
    {"folder_is_its_owners", FolderIsItsOwners},
    {"small_files", SmallFiles},
    {"few_descriptors", FewDescriptors},
    {"sixty_four_devices", SixtyFourDevices},
    {"other_pid_namespace", OtherPidNamespace},
    {"removed_file", RemovedFile},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
