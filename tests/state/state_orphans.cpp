// link: state
// flags: -pthread
// A request is stopped before every one of its instructions while another process frees memory that
// a third one imported. The freed bytes stay counted, without an owner: they and the request never
// both fit under a limit that holds only one of them.
//
//   state_orphans FOLDER
//
// Prints JSON: how many instructions the request has.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "support/state_program.h"

namespace {

using namespace statetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

constexpr uint64_t kLimitBytes = 64 * kMiB;
constexpr uint64_t kSharedBytes = 40 * kMiB;
constexpr uint64_t kRequestBytes = 40 * kMiB;

// What the request's process exits with.
enum Answer : int { kGranted = 3, kRefused = 4 };

// Stops itself before the request; its exit status is the answer.
pid_t StartRequest(const char* folder) {
  return InChild([=] {
    Member* member = NewMember(folder, kLimitBytes);
    CHECK(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
    raise(SIGSTOP);
    const bool granted = member->account.TryReserve(kRequestBytes);
    raise(SIGSTOP);  // holds what it was granted until it was looked at
    _exit(granted ? kGranted : kRefused);
  });
}

// Whether the request still was under way after that many instructions.
bool StepInto(pid_t child, uint64_t instructions) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
  CHECK(ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL) == 0);
  for (uint64_t step = 0; step < instructions; ++step) {
    CHECK(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    if (WSTOPSIG(status) == SIGSTOP) return false;
  }
  return true;
}

void GoOnToTheEndOfRequest(pid_t child) {
  int status = 0;
  CHECK(ptrace(PTRACE_CONT, child, nullptr, nullptr) == 0);
  CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
}

int AnswerOf(pid_t child) {
  CHECK(ptrace(PTRACE_CONT, child, nullptr, nullptr) == 0);
  return StatusOf(child);
}

void Free(Member* owner, const Member& importer) {
  owner->account.sharing().Unexported(kSharedBytes, /*held=*/false);
  owner->account.Release(kSharedBytes);
  CHECK(importer.account.UsedBytes() >= kSharedBytes);
}

// True when the request had an instruction of that number.
bool FreeAt(uint64_t instruction, const char* folder, Member* owner, Member* importer) {
  CHECK(owner->account.Reserve(kSharedBytes));
  owner->account.sharing().Exported(kSharedBytes, /*by_descriptor=*/false);
  importer->account.sharing().Imported();
  const pid_t child = StartRequest(folder);
  const bool reached = StepInto(child, instruction);
  Free(owner, *importer);
  if (reached) GoOnToTheEndOfRequest(child);
  CHECK(importer->account.UsedBytes() <= kLimitBytes);
  CHECK_EQ(AnswerOf(child), kRefused);
  importer->account.sharing().Dropped(1);
  owner->account.Reclaim(Effort::kThorough);
  CHECK_EQ(owner->account.UsedBytes(), 0);
  return reached;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Member* owner = NewMember(argv[1], kLimitBytes);
  Member* importer = NewMember(argv[1], kLimitBytes);
  uint64_t instructions = 0;
  while (FreeAt(instructions, argv[1], owner, importer)) ++instructions;
  printf("{\"instructions\": %llu}\n", static_cast<unsigned long long>(instructions));
  return 0;
}
