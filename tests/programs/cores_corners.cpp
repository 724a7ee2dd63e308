// Programs that would have more of a GPU than their core limit if what they do were judged by the
// usual case.
// link: cuda
//
//   cores_corners long STREAMS           kernels of three seconds, in turn, for a minute
//   cores_corners blocked                kernels of a second, while a stream waits for a value
//   cores_corners handler                all work in a handler of exit, behind the library's own
//   cores_corners hidden                 in the per-thread stream: a long kernel behind short ones
//
// They print {"share": percent of the time until all was paid for} or {"launches": that went in
// time}.
#include <time.h>
#include <unistd.h>

#include "time_program.h"

using namespace timing;

namespace {

constexpr unsigned kWholeGpu = 100'000;  // blocks: no two kernels can run side by side
constexpr unsigned long long kSecond = 1000 * kMs;

double NowUs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

bool Is(const char* word, const char* name) { return strcmp(word, name) == 0; }

// A flag that streams wait for and write.
CUdeviceptr NewFlag() {
  CUdeviceptr flag = 0;
  MUST(cuMemAllocManaged(&flag, 4, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 0;
  return flag;
}

struct Run {
  const Gpu& gpu;
  double begin_us;
  double busy_us;

  explicit Run(const Gpu& on) : gpu(on), begin_us(NowUs()), busy_us(0) {}

  bool IsOver(double ms) const { return NowUs() > begin_us + ms * 1e3; }

  void Launch(CUstream stream, unsigned long long ns) {
    MUST(gpu.Spin(stream, ns, kWholeGpu));
    busy_us += static_cast<double>(ns) / 1e3;
  }

  // One launch more goes when all before it is paid for.
  void Tell() {
    MUST(cuCtxSynchronize());
    MUST(gpu.Spin(NewStream(), kUs));
    Facts().Say("share", 100 * busy_us / (NowUs() - begin_us));
    MUST(cuCtxSynchronize());
  }
};

void Long(const Gpu& gpu, unsigned streams) {
  CUstream all[4];
  for (unsigned i = 0; i < streams; ++i) all[i] = NewStream();
  Run run(gpu);
  unsigned launches = 0;
  for (; !run.IsOver(60'000); ++launches) run.Launch(all[launches % streams], 3 * kSecond);
  Facts().Say("launches", launches);
}

void Blocked(const Gpu& gpu) {
  const CUdeviceptr flag = NewFlag();
  CUstream blocked = NewStream();
  CUstream stream = NewStream();
  MUST(cuStreamWaitValue32(blocked, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  MUST(gpu.Spin(blocked, kUs));
  Run run(gpu);
  unsigned launches = 0;
  for (; !run.IsOver(60'000); ++launches) run.Launch(stream, kSecond);
  *reinterpret_cast<volatile cuuint32_t*>(flag) = 1;
  Facts().Say("launches", launches);
}

const Gpu* handler_gpu = nullptr;

void WorkInHandler() {
  CUstream stream = NewStream();
  Run run(*handler_gpu);
  while (!run.IsOver(1'000)) run.Launch(stream, 5 * kMs);
  run.Tell();
}

// Called last, since it is registered first.
void Handler(const Gpu& gpu) {
  handler_gpu = &gpu;
  if (atexit(WorkInHandler) != 0) exit(1);
  MUST(gpu.Spin(nullptr, kUs));
  MUST(cuCtxSynchronize());
}

void Hidden(const Gpu& gpu) {
  auto stream = reinterpret_cast<CUstream>(2);  // CU_STREAM_PER_THREAD
  Run run(gpu);
  while (!run.IsOver(4'000)) {
    for (int i = 0; i < 1500; ++i) run.Launch(stream, 3 * kUs);
    run.Launch(stream, 100 * kMs);
    usleep(100'200);
  }
  run.Tell();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  static const Gpu gpu;
  const char* what = argv[1];
  if (Is(what, "blocked")) {
    Blocked(gpu);
  } else if (Is(what, "handler")) {
    Handler(gpu);
  } else if (Is(what, "hidden")) {
    Hidden(gpu);
  } else if (Is(what, "long") && argc == 3) {
    Long(gpu, static_cast<unsigned>(atoi(argv[2])));
  } else {
    return 2;
  }
  return 0;
}
