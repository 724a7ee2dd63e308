// link: state
// flags: -pthread
// One promise about regions and slots a run; fails with the place that was not true.
//
//   state_cases NAME FOLDER
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/state_program.h"

extern char** environ;

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 64 * kMiB;
const char* folder = nullptr;

std::string RegionPath() {
  char path[512];
  snprintf(path, sizeof path, "%s/gpufence-test.v%u", folder, kRegionVersion);
  return path;
}

uint32_t ReclaimBy(Member* member) { return member->account.Reclaim(Effort::kThorough); }

// Every slot can be taken, the next process is told, and a death makes room again.
void Exhaustion() {
  const rlimit files = {kMaxProcesses + 64, kMaxProcesses + 64};
  CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
  std::vector<RegionFile> members;
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    members.push_back(MustOpen(folder));
    CHECK_EQ(ClaimSlot(members.back()), i);
    // A descriptor alone keeps its lock, and so many mappings would be too much.
    munmap(members.back().region, sizeof(Region));
  }
  const RegionFile late = MustOpen(folder);
  CHECK_EQ(ClaimSlot(late), kNoSlot);
  close(members[1000].fd);
  CHECK_EQ(ClaimSlot(late), 1000);
}

void OtherUid() {
  Member* member = NewMember(folder, kLimitBytes);
  CHECK(member->account.Reserve(40 * kMiB));
  CHECK_EQ(StatusOf(InChild([] {
             CHECK(setgid(65534) == 0 && setuid(65534) == 0);
             Member* other = NewMember(folder, kLimitBytes);
             CHECK(!other->account.Reserve(40 * kMiB));
             CHECK(other->account.Reserve(20 * kMiB));
             _exit(7);
           })),
           7);
  CHECK(member->account.Reserve(24 * kMiB));
}

// A fork while threads allocate: the child owns nothing, hangs nowhere, and its end changes
// nothing.
void ForkAmongThreads() {
  Member* member = NewMember(folder, kLimitBytes);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Random random(i + 1);
      while (!stop.load()) {
        const uint64_t bytes = 1 + random.Below(4 * kMiB);
        if (member->account.Reserve(Whole(bytes))) member->account.Release(Whole(bytes));
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    CHECK_EQ(StatusOf(InChild([member] {
               CHECK(member->file.region == nullptr);  // wiped
               Member* own = NewMember(folder, kLimitBytes);
               CHECK_EQ(HeldBy(*own, own->slot), 0);
               CHECK(own->slot != 0);
               if (own->account.Reserve(Whole(5 * kMiB))) own->account.Release(Whole(3 * kMiB));
               ReclaimBy(own);
             })),
             0);
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  ReclaimBy(member);
  CHECK_EQ(member->account.UsedBytes(), 0);
}

// Programs that are started from a member own nothing of it and hold no lock of it.
void Spawned() {
  auto* spawned = static_cast<pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t member_pid = InChild([=] {
    Member* member = NewMember(folder, kLimitBytes);
    CHECK(member->account.Reserve(32 * kMiB));
    const char* const arguments[] = {"sleep", "30", nullptr};
    CHECK(posix_spawnp(spawned, "sleep", nullptr, nullptr, const_cast<char**>(arguments),
                       environ) == 0);
  });
  CHECK_EQ(StatusOf(member_pid), 0);
  Member* next = NewMember(folder, kLimitBytes);
  CHECK(next->account.Reserve(64 * kMiB));
  CHECK(kill(*spawned, SIGKILL) == 0);
}

// exec ends what the process held, though it goes on under its number.
void Exec() {
  const pid_t child = InChild([] {
    Member* member = NewMember(folder, kLimitBytes);
    CHECK(member->account.Reserve(32 * kMiB));
    execlp("sleep", "sleep", "30", nullptr);
  });
  Member* next = NewMember(folder, kLimitBytes);
  for (int i = 0; i < 2000 && !next->account.Reserve(64 * kMiB); ++i) usleep(1000);
  CHECK_EQ(next->account.UsedBytes(), 64 * kMiB);
  CHECK(kill(child, 0) == 0);
  kill(child, SIGKILL);
  StatusOf(child);
}

// A raw clone runs no fork handlers and starts just as empty.
void RawClone() {
  Member* member = NewMember(folder, kLimitBytes);
  CHECK(member->account.Reserve(32 * kMiB));
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(member->file.region == nullptr);
    Member* own = NewMember(folder, kLimitBytes);
    CHECK(!own->account.Reserve(40 * kMiB));
    _exit(0);
  }
  CHECK_EQ(StatusOf(static_cast<pid_t>(child)), 0);
  CHECK_EQ(HeldBy(*member, member->slot), 32 * kMiB);
}

// A child that inherited descriptor and mapping outlives its parent: the parent counts as dead, as
// a zombie first and when it is gone.
void Orphan() {
  int parent_to_us[2];
  CHECK(pipe(parent_to_us) == 0);
  const pid_t parent = InChild([&] {
    Member* member = NewMember(folder, kLimitBytes);
    CHECK(member->account.Reserve(48 * kMiB));
    const pid_t orphan = InChild([] { pause(); });
    CHECK(write(parent_to_us[1], &orphan, sizeof orphan) == sizeof orphan);
  });
  pid_t orphan = 0;
  CHECK(read(parent_to_us[0], &orphan, sizeof orphan) == sizeof orphan);
  siginfo_t ended;
  CHECK(waitid(P_PID, static_cast<id_t>(parent), &ended, WEXITED | WNOWAIT) == 0);
  Member* next = NewMember(folder, kLimitBytes);
  CHECK(next->account.Reserve(64 * kMiB));
  StatusOf(parent);
  kill(orphan, SIGKILL);
}

// A number that belongs to another process by now proves nothing; an older start does.
void PidReuse() {
  Member* member = NewMember(folder, kLimitBytes);
  const pid_t other = InChild([] {
    Member* own = NewMember(folder, kLimitBytes);
    CHECK(own->account.Reserve(48 * kMiB));
    pause();
  });
  while (HeldBy(*member, 1) != 48 * kMiB) usleep(1000);
  CHECK_EQ(ReclaimBy(member), 0);
  CHECK(!member->account.Reserve(32 * kMiB));
  member->file.region->processes[1].start_ticks -= 1;
  CHECK_EQ(ReclaimBy(member), 1);
  CHECK(member->account.Reserve(64 * kMiB));
  kill(other, SIGKILL);
  StatusOf(other);
}

// Process 1 of a container that was made anew under its name: the number lives, its owner does not.
void DeadLimit() {
  CHECK_EQ(StatusOf(InChild([] {
             const Member* own = NewMember(folder, kLimitBytes / 4);
             own->file.region->processes[own->slot].pid.store(1, std::memory_order_release);
           })),
           0);
  CHECK_EQ(StatusOf(InChild([] {
             const Member* own = NewMember(folder, kLimitBytes);
             PublishRatio(own->file.region, own->row, own->slot, 2000);
             own->file.region->processes[own->slot].pid.store(1, std::memory_order_release);
           })),
           0);
  Member* member = NewMember(folder, kLimitBytes);
  CHECK_EQ(member->slot, 2);
  CHECK_EQ(member->account.LimitBytes(), kLimitBytes);
  CHECK_EQ(HighestRatio(member->file.region, member->row), 0);
  const pid_t other = InChild([] {
    NewMember(folder, kLimitBytes / 2);
    pause();
  });
  while (member->account.LimitBytes() == kLimitBytes) usleep(1000);
  CHECK_EQ(member->account.LimitBytes(), kLimitBytes / 2);
  kill(other, SIGKILL);
  StatusOf(other);
}

// A daemon closes all descriptors: it stays alive and charged, and other files stay untouched.
void ClosedDescriptor() {
  Member* member = NewMember(folder, kLimitBytes);
  CHECK(member->account.Reserve(48 * kMiB));
  const int number = member->file.fd;
  close(number);
  CHECK_EQ(StatusOf(InChild([] {
             Member* own = NewMember(folder, kLimitBytes);
             CHECK(!own->account.Reserve(32 * kMiB));
           })),
           0);
  const std::string other_path = std::string(folder) + "/other";
  CHECK_EQ(dup2(open(other_path.c_str(), O_RDWR | O_CREAT, 0600), number), number);
  const pid_t sibling = InChild([] {
    Member* own = NewMember(folder, kLimitBytes);
    CHECK(own->account.Reserve(16 * kMiB));
    pause();
  });
  while (member->account.UsedBytes() != 64 * kMiB) usleep(1000);
  CHECK_EQ(ReclaimBy(member), 0);
  CHECK_EQ(member->account.UsedBytes(), 64 * kMiB);
  kill(sibling, SIGKILL);
  StatusOf(sibling);
  CHECK(member->account.Reserve(16 * kMiB));
}

// What a process was asking for when it died is as free as what it held, and so is its limit.
void DeadAsking() {
  Member* member = NewMember(folder, kLimitBytes);
  const pid_t asker = InChild([] {
    Member* own = NewMember(folder, 8 * kMiB);
    AskWithoutDeciding(own, 60 * kMiB);
    kill(getpid(), SIGKILL);
  });
  CHECK_EQ(StatusOf(asker), 128 + SIGKILL);
  CHECK_EQ(member->account.LimitBytes(), kLimitBytes);
  CHECK(member->account.Reserve(64 * kMiB));
}

// A stopped process that is asking holds nobody up for long, and costs no more than it asks for.
void StoppedAsking() {
  Member* member = NewMember(folder, kLimitBytes);
  const pid_t asker = InChild([] {
    Member* own = NewMember(folder, kLimitBytes);
    AskWithoutDeciding(own, 32 * kMiB);
    kill(getpid(), SIGSTOP);
  });
  int status = 0;
  CHECK(waitpid(asker, &status, WUNTRACED) == asker && WIFSTOPPED(status));
  timespec start;
  timespec end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  CHECK(!member->account.Reserve(40 * kMiB));
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK(end.tv_sec - start.tv_sec <= 2);
  CHECK(member->account.Reserve(32 * kMiB));
  kill(asker, SIGKILL);
  StatusOf(asker);
}

template <typename Damage>
void HealAfter(Damage damage) {
  const RegionFile first = MustOpen(folder);
  munmap(first.region, sizeof(Region));
  close(first.fd);
  damage();
  Member* member = NewMember(folder, kLimitBytes);
  CHECK(member->account.Reserve(kLimitBytes));
  CHECK_EQ(member->file.region->header.layout_version, kRegionVersion);
}

void Overwrite(off_t offset, const void* bytes, size_t count) {
  const int file = open(RegionPath().c_str(), O_RDWR);
  CHECK(file >= 0 && pwrite(file, bytes, count, offset) == static_cast<ssize_t>(count));
  close(file);
}

void Damaged() {
  HealAfter([] { Overwrite(0, "rubbish!", 8); });
}
void Truncated() {
  HealAfter([] { CHECK(truncate(RegionPath().c_str(), 100) == 0); });
}
void Empty() {
  HealAfter([] { CHECK(truncate(RegionPath().c_str(), 0) == 0); });
}
void ForeignLayout() {
  const uint32_t version = kRegionVersion + 1;
  HealAfter([&] { Overwrite(offsetof(RegionHeader, layout_version), &version, sizeof version); });
}

// Many who find a damaged region at once meet in one.
void DamagedTogether() {
  HealAfter([] { Overwrite(0, "rubbish!", 8); });
  Overwrite(0, "rubbish!", 8);
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    children.push_back(InChild([] {
      Member* own = NewMember(folder, kLimitBytes);
      CHECK(own->account.Reserve(1 * kMiB));
      usleep(300000);
      CHECK_EQ(own->account.UsedBytes(), 16 * kMiB);
      usleep(300000);
    }));
  }
  for (const pid_t child : children) CHECK_EQ(StatusOf(child), 0);
}

// Looking on works read-only, takes no slot and makes nothing.
void LookOn() {
  RegionFile seen;
  CHECK(!FindRegion(PlacesIn(folder), &seen));
  CHECK(access(RegionPath().c_str(), F_OK) != 0);
  Member* member = NewMember(folder, kLimitBytes);
  CHECK(member->account.Reserve(5 * kMiB));
  CHECK(FindRegion(PlacesIn(folder), &seen));
  const RowSeen row = LookAtRow(seen, LookRow(seen.region, kUuid));
  CHECK_EQ(row.used_bytes, 5 * kMiB);
  CHECK_EQ(row.limit_bytes, kLimitBytes);
  CHECK(KnowsProcess(seen.region, static_cast<uint32_t>(getpid())));
  CHECK(!KnowsProcess(seen.region, static_cast<uint32_t>(getppid())));
  CHECK_EQ(seen.region->header.high_slot.load(), 1);
}

// A program that closed standard streams goes on printing to their numbers: whichever of them are
// free, the region gets none.
void ClosedStreams() {
  for (unsigned closed = 0; closed < 8; ++closed) {
    CHECK_EQ(StatusOf(InChild([closed] {
               for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
                 if ((closed >> stream & 1) != 0) close(stream);
               }
               const RegionFile file = MustOpen(folder);
               const int reopened = ReopenRegion(file);
               if (file.fd <= STDERR_FILENO || reopened <= STDERR_FILENO) _exit(1);
             })),
             0);
  }
}

// Another process took this one for dead and gave its bytes away. What it releases later is no
// longer counted, so nothing may be taken from what others hold.
void ReleaseAfterReclaim() {
  Member* member = NewMember(folder, kLimitBytes);
  Member* other = NewMember(folder, kLimitBytes);
  CHECK(member->account.Reserve(24 * kMiB));
  CHECK(other->account.Reserve(40 * kMiB));
  member->file.region->cells[member->row][member->slot].held.store(8 * kMiB);
  ReclaimBy(other);  // rebuilds the total from the cells
  CHECK_EQ(other->account.UsedBytes(), 48 * kMiB);
  member->account.Release(24 * kMiB);
  CHECK_EQ(HeldBy(*member, member->slot), 0);
  CHECK_EQ(other->account.UsedBytes(), 40 * kMiB);
  CHECK(!other->account.TryReserve(24 * kMiB + 1));
}

// A full folder is an error when the region is made or a GPU joins it, never a signal later.
void FullFolder() {
  char why[400] = "";
  RegionFile file;
  if (!OpenRegion(PlacesIn(folder), &file, why, sizeof why)) {
    CHECK(strstr(why, strerror(ENOSPC)) != nullptr);
    return;
  }
  CHECK(ClaimSlot(file) != kNoSlot);
  CHECK_EQ(FindRow(file, kUuid), kMaxDevices);
}

constexpr Case kCases[] = {
    {"exhaustion", Exhaustion},
    {"other_uid", OtherUid},
    {"fork_threads", ForkAmongThreads},
    {"spawned", Spawned},
    {"exec", Exec},
    {"raw_clone", RawClone},
    {"orphan", Orphan},
    {"pid_reuse", PidReuse},
    {"dead_limit", DeadLimit},
    {"closed_descriptor", ClosedDescriptor},
    {"dead_asking", DeadAsking},
    {"stopped_asking", StoppedAsking},
    {"damaged", Damaged},
    {"truncated", Truncated},
    {"empty", Empty},
    {"foreign_layout", ForeignLayout},
    {"damaged_together", DamagedTogether},
    {"look_on", LookOn},
    {"closed_streams", ClosedStreams},
    {"release_after_reclaim", ReleaseAfterReclaim},
    {"full_folder", FullFolder},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  folder = argv[2];
  return RunCase(kCases, argv[1]);
}
