// Programs that would have more of a GPU than their core limit, less than they need of it, or a
// hang, if what they do were judged by the usual case.
// link: cuda
//
//   cores_corners long STREAMS           kernels of three seconds, in turn, for a minute
//   cores_corners blocked                kernels of a second, while a stream waits for a value
//   cores_corners handler                all work in a handler of exit, behind the library's own
//   cores_corners hidden                 in the per-thread stream: a long kernel behind short ones
//   cores_corners paced WAY KERNEL_US PAUSE_US
//                                        a pause behind each launch; then, by WAY, sync, event,
//                                        query, copy or none; behind eight in the legacy stream,
//                                        while there is a blocking one: legacy (sync) or context
//   cores_corners behind WAY             kernels behind copies or host functions in the legacy
//                                        stream: running (a kernel is queued before each) or idle
//   cores_corners side_by_side WAY       streams that count on each other, after the program asked
//                                        (query) or waited for an event (event)
//   cores_corners ready WAY              asks whether a stream is done, behind a wait for an event
//                                        (event) or for nothing (none)
//   cores_corners other_context          waits for a context that does nothing, while a long kernel
//                                        runs in the thread's own
//   cores_corners within                 a long kernel, and while it runs short ones in another
//                                        stream, each waited for
//   cores_corners rarely_long COUNT      short kernels, each waited for; one in COUNT is long
//   cores_corners uneven COUNT KERNEL_US short kernels, in fours that an event ends and whose wait
//                                        returns late; those of one four in COUNT are longer
//   cores_corners late_waits             short kernels; for one in twenty the wait begins late
//   cores_corners rounds KERNEL_US PAUSE_US
//                                        forty kernels, each waited for by an event; a pause
//   cores_corners held WAY               kernels of 20 ms; ends behind a held launch: WAY is main
//                                        or handler (of exit)
//   cores_corners contexts               launches in a handler of exit, above a context that is
//                                        pushed; is it the thread's own again behind that?
//   cores_corners forgotten              ends a stream, then waits for its context
//
// They print {"share": percent of the time until all was paid for}, {"launches": that went in
// time}, {"done": 0 or 1} or {"held": launches, "held_us": all together}.
#include <time.h>
#include <unistd.h>

#include "support/time_program.h"

using namespace timing;

namespace {

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

// None waits longer for nothing: a launch and its marker take a microsecond or two.
constexpr double kHeldUs = 100;

void BeHeld(const Gpu& gpu) {
  CUstream stream = NewStream();
  double held = 0;
  double held_us = 0;
  double last_us = 0;
  for (int i = 0; i < 6 || last_us < kHeldUs; ++i) {
    const double begin_us = NowUs();
    MUST(gpu.Spin(stream, 20 * kMs, kWholeGpu));
    last_us = NowUs() - begin_us;
    held += last_us >= kHeldUs ? 1 : 0;
    held_us += last_us >= kHeldUs ? last_us : 0;
  }
  Facts facts;
  facts.Say("held", held);
  facts.Say("held_us", held_us);
}

void BeHeldInHandler() { BeHeld(*handler_gpu); }

// Nobody else looks at what ran: each launch does, in the contexts of all streams.
void KeepContexts() {
  CUcontext lower = nullptr;
  MUST(cuCtxCreate_v2(&lower, 0, handler_gpu->device));
  MUST(cuCtxPushCurrent_v2(handler_gpu->context));
  CUstream stream = NewStream();
  for (int i = 0; i < 20; ++i) MUST(handler_gpu->Spin(stream, 5 * kMs));
  CUcontext upper = nullptr;
  CUcontext left = nullptr;
  MUST(cuCtxPopCurrent_v2(&upper));
  MUST(cuCtxGetCurrent(&left));
  Facts().Say("done", upper == handler_gpu->context && left == lower);
}

// Called last, since it is registered first.
void InHandler(const Gpu& gpu, void (*handler)()) {
  handler_gpu = &gpu;
  if (atexit(handler) != 0) exit(1);
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

void Paced(const Gpu& gpu, const char* way, unsigned long long kernel_ns, useconds_t pause_us) {
  const bool is_legacy = Is(way, "legacy") || Is(way, "context");
  CUstream stream = is_legacy ? nullptr : NewStream();
  if (is_legacy) NewStream(0);
  CUevent event = NewEvent();
  CUdeviceptr memory = 0;
  void* host = nullptr;
  MUST(cuMemAlloc_v2(&memory, 4096));
  MUST(cuMemAllocHost_v2(&host, 4096));
  for (int i = 0; i < 300; ++i) MUST(gpu.Spin(stream, kernel_ns, kWholeGpu));
  MUST(cuCtxSynchronize());
  usleep(500'000);
  Run run(gpu);
  double launches = 0;
  for (; !run.IsOver(1'000); ++launches) {
    for (int i = 0; i < (is_legacy ? 8 : 1); ++i) run.Launch(stream, kernel_ns);
    if (Is(way, "event")) MUST(cuEventRecord(event, stream));
    usleep(pause_us);
    if (Is(way, "sync") || Is(way, "legacy")) MUST(cuStreamSynchronize(stream));
    if (Is(way, "context")) MUST(cuCtxSynchronize());
    if (Is(way, "event")) MUST(cuEventSynchronize(event));
    while (Is(way, "query") && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    }
    if (Is(way, "copy")) MUST(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
  }
  MUST(cuCtxSynchronize());
  Facts().Say("launches", launches);
}

// A fifth of the time in kernels.
void Behind(const Gpu& gpu, const char* way) {
  constexpr unsigned long long kBytes = 500'000;  // GPUFENCE_SIM_BUS_MB_PER_S=500: a millisecond
  const bool is_running = Is(way, "running");
  CUstream stream = NewStream(0);
  CUdeviceptr memory = 0;
  void* host = nullptr;
  MUST(cuMemAlloc_v2(&memory, kBytes));
  MUST(cuMemAllocHost_v2(&host, kBytes));
  Run run(gpu);
  double launches = 0;
  for (; !run.IsOver(250); ++launches) {
    if (is_running) run.Launch(stream, 100 * kUs);
    MUST(cuMemcpyDtoHAsync_v2(host, memory, kBytes, nullptr));
    run.Launch(stream, is_running ? 150 * kUs : 250 * kUs);
    if (!is_running) MUST(cuStreamSynchronize(stream));
    if (is_running) MUST(cuEventSynchronize(Mark(stream)));
  }
  MUST(cuCtxSynchronize());
  Facts().Say("launches", launches);
}

// The first stream waits for what is put into the second one later.
void SideBySide(const Gpu& gpu, const char* way) {
  const CUdeviceptr flag = NewFlag();
  CUstream first = NewStream(0);
  CUstream second = NewStream(0);
  for (int i = 0; i < 2000; ++i) MUST(gpu.Spin(nullptr, 3 * kUs, kWholeGpu));
  MUST(cuCtxSynchronize());
  MUST(gpu.Spin(nullptr, 3 * kUs, kWholeGpu));
  MUST(gpu.Spin(second, kUs));
  CUevent event = Mark(second);
  MUST(cuStreamWaitValue32(first, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  MUST(gpu.Spin(first, kUs));
  if (Is(way, "event")) MUST(cuEventSynchronize(event));
  if (Is(way, "query")) (void)cuStreamQuery(nullptr);
  usleep(10'000);
  MUST(cuStreamWriteValue32(second, flag, 1, 0));
  for (int i = 0; i < 100 && cuStreamQuery(second) == CUDA_ERROR_NOT_READY; ++i) usleep(10'000);
  auto* seen = reinterpret_cast<volatile cuuint32_t*>(flag);
  Facts().Say("done", *seen == 1);
  *seen = 1;
  MUST(cuCtxSynchronize());
}

// Behind so many short kernels that the last of them have no marker yet.
void Ready(const Gpu& gpu, const char* way) {
  CUstream stream = NewStream();
  for (int i = 0; i < 300; ++i) MUST(gpu.Spin(stream, 3 * kUs, kWholeGpu));
  CUevent event = Mark(stream);
  if (Is(way, "event")) MUST(cuEventSynchronize(event));
  Facts().Say("done", cuStreamQuery(stream) == CUDA_SUCCESS);
}

// Short kernels that are waited for make the host's clock tell when such runs end; then a long one
// is behind one of them.
void OtherContext(const Gpu& gpu) {
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, gpu.device));
  MUST(cuCtxSetCurrent(gpu.context));
  for (int i = 0; i < 60; ++i) {
    MUST(gpu.Spin(nullptr, 10 * kUs, kWholeGpu));
    MUST(cuStreamSynchronize(nullptr));
  }
  NewStream(0);
  Run run(gpu);
  run.Launch(nullptr, 10 * kUs);
  run.Launch(nullptr, 500 * kMs);
  MUST(cuCtxSynchronize_v2(other));
  run.Tell();
}

void Within(const Gpu& gpu) {
  CUstream stream = NewStream();
  CUstream other = NewStream();
  Run run(gpu);
  while (!run.IsOver(2'000)) {
    MUST(gpu.Spin(stream, 3 * kMs));
    run.busy_us += 3e3;
    for (int i = 0; i < 60; ++i) {
      MUST(gpu.Spin(other, 20 * kUs));
      MUST(cuStreamSynchronize(other));
    }
    MUST(cuStreamSynchronize(stream));
  }
  run.Tell();
}

void RarelyLong(const Gpu& gpu, unsigned count) {
  CUstream stream = NewStream();
  Run run(gpu);
  for (unsigned i = 0; !run.IsOver(2'000); ++i) {
    run.Launch(stream, i % count == count - 1 ? 500 * kUs : 10 * kUs);
    MUST(cuStreamSynchronize(stream));
  }
  run.Tell();
}

void Uneven(const Gpu& gpu, unsigned count, unsigned long long kernel_ns) {
  constexpr useconds_t kWakingUpUs = 30;
  CUstream stream = NewStream();
  CUevent end = nullptr;
  MUST(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  Run run(gpu);
  for (unsigned i = 0; !run.IsOver(2'000); ++i) {
    for (int each = 0; each < 4; ++each) {
      const unsigned long long ns = i % count == count - 1 ? kernel_ns : 10 * kUs;
      MUST(gpu.Spin(stream, ns, kWholeGpu));
      run.busy_us += static_cast<double>(ns) / 1e3;
    }
    MUST(cuEventRecord(end, stream));
    MUST(cuEventSynchronize(end));
    usleep(kWakingUpUs);
  }
  run.Tell();
}

void LateWaits(const Gpu& gpu) {
  CUstream stream = NewStream();
  Run run(gpu);
  unsigned launches = 0;
  for (; !run.IsOver(300); ++launches) {
    run.Launch(stream, 10 * kUs);
    if (launches % 20 == 0) usleep(500);
    MUST(cuStreamSynchronize(stream));
  }
  Facts().Say("launches", launches);
}

void Rounds(const Gpu& gpu, unsigned long long kernel_ns, useconds_t pause_us) {
  CUstream stream = NewStream();
  Run run(gpu);
  double launches = 0;
  for (; !run.IsOver(500); usleep(pause_us)) {
    for (int i = 0; i < 40; ++i, ++launches) {
      run.Launch(stream, kernel_ns);
      MUST(cuEventSynchronize(Mark(stream)));
    }
  }
  Facts().Say("launches", launches);
}

void Forgotten(const Gpu& gpu) {
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, 10 * kUs, kWholeGpu));
  MUST(cuStreamDestroy_v2(stream));
  MUST(cuCtxSynchronize());
  Facts().Say("done", 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  static const Gpu gpu;
  const char* what = argv[1];
  if (Is(what, "blocked")) {
    Blocked(gpu);
  } else if (Is(what, "handler")) {
    InHandler(gpu, WorkInHandler);
  } else if (Is(what, "contexts")) {
    InHandler(gpu, KeepContexts);
  } else if (Is(what, "held") && argc == 3) {
    if (Is(argv[2], "main")) BeHeld(gpu);
    if (Is(argv[2], "handler")) InHandler(gpu, BeHeldInHandler);
  } else if (Is(what, "hidden")) {
    Hidden(gpu);
  } else if (Is(what, "rarely_long") && argc == 3) {
    RarelyLong(gpu, static_cast<unsigned>(atoi(argv[2])));
  } else if (Is(what, "uneven") && argc == 4) {
    Uneven(gpu, static_cast<unsigned>(atoi(argv[2])), strtoull(argv[3], nullptr, 10) * kUs);
  } else if (Is(what, "rounds") && argc == 4) {
    Rounds(gpu, strtoull(argv[2], nullptr, 10) * kUs, static_cast<useconds_t>(atoi(argv[3])));
  } else if (Is(what, "late_waits")) {
    LateWaits(gpu);
  } else if (Is(what, "other_context")) {
    OtherContext(gpu);
  } else if (Is(what, "forgotten")) {
    Forgotten(gpu);
  } else if (Is(what, "within")) {
    Within(gpu);
  } else if (Is(what, "behind") && argc == 3) {
    Behind(gpu, argv[2]);
  } else if (Is(what, "ready") && argc == 3) {
    Ready(gpu, argv[2]);
  } else if (Is(what, "long") && argc == 3) {
    Long(gpu, static_cast<unsigned>(atoi(argv[2])));
  } else if (Is(what, "side_by_side") && argc == 3) {
    SideBySide(gpu, argv[2]);
  } else if (Is(what, "paced") && argc == 5) {
    Paced(gpu, argv[2], strtoull(argv[3], nullptr, 10) * kUs,
          static_cast<useconds_t>(atoi(argv[4])));
  } else {
    return 2;
  }
  return 0;
}
