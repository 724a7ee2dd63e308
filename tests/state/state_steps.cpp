// link: state
// flags: -pthread
// One process is stopped, then killed, before every instruction of an operation on the region.
//
//   state_steps OPERATION FOLDER STRIDE
//
// While it stands there nobody may have to wait for it, and no more than what it may hold can be
// missing; after its death nothing may be missing. STRIDE: every how many instructions (1: all; the
// work grows with the square of the operation's length).
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 64 * kMiB;
constexpr uint64_t kMostBytes = 16 * kMiB;  // what the stepped process holds at most
constexpr uint8_t kOtherUuid[16] = {0xcd, 1, 2, 3};

const char* folder = nullptr;
Member* member = nullptr;  // of the stepped process

void NoPreparation() {}
void BeMember() { member = NewMember(folder, kLimitBytes); }
void Hold() {
  BeMember();
  CHECK(member->account.Reserve(kMostBytes));
}

void ReserveOnce() { CHECK(member->account.Reserve(kMostBytes)); }
void ReleaseOnce() { member->account.Release(kMostBytes); }
void BookOnce() { member->account.Book(kMostBytes); }
void Publish() { PublishLimit(member->file.region, member->row, member->slot, kLimitBytes); }
void JoinRow() { CHECK(FindRow(member->file, kOtherUuid) != kMaxDevices); }
void Reclaim() { ReclaimDead(member->file, member->slot, Effort::kThorough); }

// The slot that is claimed or reclaimed was left by somebody who held everything when killed, so
// that a request has to look for the dead.
void LeaveDeadHolder() {
  const pid_t dead = fork();
  CHECK(dead >= 0);
  if (dead == 0) {
    BeMember();
    CHECK(member->account.Reserve(kLimitBytes));
    kill(getpid(), SIGKILL);
  }
  CHECK(waitpid(dead, nullptr, 0) == dead);
}
void BeMemberBesideDeadHolder() {
  BeMember();
  LeaveDeadHolder();
}
void Nobody() {}

struct Operation {
  const char* name;
  void (*leave)();    // in a process of its own, before
  void (*prepare)();  // in the stepped process
  void (*run)();      // stepped through
};
constexpr Operation kOperations[] = {
    {"reserve", Nobody, BeMember, ReserveOnce},
    {"reserve_after_death", Nobody, BeMemberBesideDeadHolder, ReserveOnce},
    {"release", Nobody, Hold, ReleaseOnce},
    {"book", Nobody, BeMember, BookOnce},
    {"publish", Nobody, Hold, Publish},
    {"row", Nobody, Hold, JoinRow},
    {"join", LeaveDeadHolder, NoPreparation, BeMember},
    {"reclaim", Nobody, BeMemberBesideDeadHolder, Reclaim},
};

pid_t StartStepped(const Operation& operation) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) return child;
  operation.prepare();
  CHECK(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
  raise(SIGSTOP);
  operation.run();
  _exit(0);
}

// False when the process came to its end first.
bool StepTo(pid_t child, uint64_t instruction) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSTOPPED(status));  // or its preparation failed
  CHECK(ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL) == 0);
  for (uint64_t step = 0; step < instruction; ++step) {
    CHECK(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      CHECK_EQ(WEXITSTATUS(status), 0);
      return false;
    }
  }
  return true;
}

// True when the operation had an instruction of that number.
bool StopAndKillAt(const Operation& operation, uint64_t instruction, Member* other) {
  operation.leave();
  const pid_t child = StartStepped(operation);
  const bool reached = StepTo(child, instruction);
  // What it cannot hold is there for the asking, and what it may hold is not given out twice.
  CHECK(other->account.Reserve(kLimitBytes - kMostBytes));
  CHECK(!other->account.Reserve(kMostBytes + 1));
  other->account.Release(kLimitBytes - kMostBytes);
  if (reached) {
    kill(child, SIGKILL);
    CHECK(waitpid(child, nullptr, 0) == child);
  }
  CHECK(other->account.Reserve(kLimitBytes));
  CHECK_EQ(other->account.UsedBytes(), kLimitBytes);
  CHECK_EQ(HeldBy(*other, other->slot), kLimitBytes);
  other->account.Release(kLimitBytes);
  CHECK_EQ(other->account.UsedBytes(), 0);
  CHECK_EQ(LookAtRow(other->file, other->row).used_bytes, 0);
  return reached;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  folder = argv[2];
  const uint64_t stride = strtoull(argv[3], nullptr, 10);
  for (const Operation& operation : kOperations) {
    if (strcmp(operation.name, argv[1]) != 0) continue;
    Member* other = NewMember(folder, kLimitBytes);
    uint64_t instruction = 0;
    while (StopAndKillAt(operation, instruction, other)) instruction += stride;
    printf("{\"instructions\": %llu}\n", static_cast<unsigned long long>(instruction));
    return 0;
  }
  return 2;
}
