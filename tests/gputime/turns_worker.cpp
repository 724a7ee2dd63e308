// Keeps a GPU busy until it is told to end, so that its queue is never empty, and writes down what
// it did in a file that it shares with others: works through whatever happens to its neighbours.
// link: cuda
// flags: -pthread
//
//   turns_worker KERNEL_US DIARY INDEX [MODE]
//
// DIARY holds 64-bit words: the first ends all who share it; number 1 + INDEX counts kernels that
// ran. Modes: one (device, the default), both (devices; the next word counts the second one's),
// alone (no thread can be started any more). Prints {"kernels"} in the end.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr int kBatch = 4;  // kernels between two waits, each for the ones before
constexpr size_t kWords = 512;

using Word = std::atomic<unsigned long long>;

Word* OpenDiary(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, kWords * sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || memory == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  return static_cast<Word*>(memory);
}

// From here on no thread and no child can be made, as where a container may have no more.
void ForbidThreads() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    perror("seccomp");
    exit(77);
  }
}

// One device's work.
struct Lane {
  Word* end;
  Word* count;
  const Gpu* gpu;
  CUstream stream;
  unsigned long long ns;
  unsigned long long kernels;
};

// Waits for a batch.
void Count(Lane* lane, CUevent end) {
  MUST(cuEventSynchronize(end));
  lane->kernels += kBatch;
  lane->count->fetch_add(kBatch);
}

void* Drive(void* argument) {
  auto* lane = static_cast<Lane*>(argument);
  MUST(cuCtxSetCurrent(lane->gpu->context));
  CUevent ends[2] = {NewEvent(CU_EVENT_DISABLE_TIMING), NewEvent(CU_EVENT_DISABLE_TIMING)};
  for (size_t batch = 0; lane->end->load() == 0; ++batch) {
    for (int i = 0; i < kBatch; ++i) MUST(lane->gpu->Spin(lane->stream, lane->ns, kWholeGpu));
    MUST(cuEventRecord(ends[batch % 2], lane->stream));
    if (batch != 0) Count(lane, ends[(batch + 1) % 2]);
  }
  MUST(cuStreamSynchronize(lane->stream));
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* mode = argc > 4 ? argv[4] : "one";
  const int devices = strcmp(mode, "both") == 0 ? 2 : 1;
  const unsigned long long ns = strtoull(argv[1], nullptr, 10) * kUs;
  Word* diary = OpenDiary(argv[2]);
  Word* own = diary + 1 + strtoull(argv[3], nullptr, 10);
  const Gpu second(0, devices - 1);
  CUstream second_stream = NewStream();
  const Gpu first;
  CUstream stream = NewStream();
  if (strcmp(mode, "alone") == 0) ForbidThreads();
  // A thread for each device, so that waiting for one does not hold the other.
  pthread_t thread;
  Lane lanes[] = {{diary, own, &first, stream, ns, 0},
                  {diary, own + 1, &second, second_stream, ns, 0}};
  if (devices == 2 && pthread_create(&thread, nullptr, Drive, &lanes[1]) != 0) return 1;
  Drive(&lanes[0]);
  if (devices == 2) pthread_join(thread, nullptr);
  Facts facts;
  facts.Say("kernels", static_cast<double>(lanes[0].kernels + lanes[1].kernels));
  return 0;
}
