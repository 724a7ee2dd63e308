// link: cuda nvml
// flags: -pthread
// Memory that the driver grants to one thread at the moment at which another one ends the context.
//
//   memory_ends late WHAT END   one thread makes WHAT (linear, pitched, piece, array, small-array,
//                               primary); while that call is late (a fault of the simulated driver)
//                               and its memory is there, the context ends by END (reset, release,
//                               renew: reset and retained again, destroy), or by `other` another
//                               context does. {"made": its code, "free": MiB below the limit then}
//   memory_ends looked-at END   the driver is looked at for a request that is refused, beside 2 MiB
//                               of managed memory; while that look is late, the context ends by
//                               END. {"code": of the request, "free": MiB below the limit then}
//   memory_ends storm THREADS ROUNDS
//                               several make all of them until a reset ends their context, again
//                               and again. {"left": after how many resets something stayed charged}
#include <atomic>
#include <chrono>
#include <iterator>
#include <thread>

#include "raw_symbol.h"
#include "support/fence_program.h"

namespace {

using namespace fencetest;  // NOLINT(google-build-using-namespace): a test program's own helpers

CUcontext Create() {
  CUcontext context = nullptr;
  MUST(cuCtxCreate_v2(&context, 0, 0));
  return context;
}

CUcontext RetainPrimary() {
  CUcontext primary = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  return primary;
}

CUresult MakeArray(size_t side) {
  const CUDA_ARRAY_DESCRIPTOR wanted = {
      .Width = side, .Height = side, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
  CUarray array = nullptr;
  return cuArrayCreate_v2(&array, &wanted);
}

CUresult Make(const char* what) {
  CUdeviceptr address = 0;
  size_t pitch = 0;
  CUcontext primary = nullptr;
  const auto is = [&](const char* name) { return strcmp(what, name) == 0; };
  if (is("linear")) return cuMemAlloc_v2(&address, 64 * kMiB);
  if (is("pitched")) return cuMemAllocPitch_v2(&address, &pitch, 1000, 10000, 4);
  if (is("piece")) return cuMemAlloc_v2(&address, kMiB);
  if (is("array")) return MakeArray(1000);
  if (is("small-array")) return MakeArray(100);
  if (is("primary")) return cuDevicePrimaryCtxRetain(&primary, 0);
  exit(2);
}

// What the driver itself has left, whoever is limited. (NVML calls its own exports, and so us.)
size_t DriverFreeBytes() {
  using Info = decltype(&cuMemGetInfo_v2);
  static const auto info =
      reinterpret_cast<Info>(bench::RawSymbol("libcuda.so", "cuMemGetInfo_v2"));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MUST(info(&free_bytes, &total_bytes));
  return free_bytes;
}

void End(const char* how, CUcontext context, CUcontext other) {
  const auto is = [&](const char* name) { return strcmp(how, name) == 0; };
  if (is("reset") || is("renew")) MUST(cuDevicePrimaryCtxReset_v2(0));
  if (is("renew")) RetainPrimary();
  if (is("release")) MUST(cuDevicePrimaryCtxRelease_v2(0));
  if (is("destroy")) MUST(cuCtxDestroy_v2(context));
  if (is("other")) MUST(cuCtxDestroy_v2(other));
}

void Late(simtest::Facts* facts, const char* what, const char* how) {
  CUcontext kept = Create();
  CUcontext context = nullptr;
  if (strcmp(what, "primary") != 0) {
    context = strcmp(how, "destroy") == 0 ? Create() : RetainPrimary();
  }
  CUcontext other = strcmp(how, "other") == 0 ? Create() : nullptr;
  const size_t before = DriverFreeBytes();
  std::atomic<int> made{-1};
  std::thread maker([&] {
    MUST(cuCtxSetCurrent(context));
    made = Make(what);
  });
  while (DriverFreeBytes() == before && made == -1) std::this_thread::yield();
  End(how, context, other);
  facts->Say("in time", made == -1);
  maker.join();
  facts->Say("made", static_cast<uint64_t>(made));
  MUST(cuCtxSetCurrent(kept));
  facts->Say("free", FreeMiB());
}

void LookedAt(simtest::Facts* facts, const char* how) {
  CUcontext kept = Create();
  CUdeviceptr managed = 0;
  MUST(cuMemAllocManaged(&managed, 2 * kMiB, CU_MEM_ATTACH_GLOBAL));
  CUcontext context = strcmp(how, "destroy") == 0 ? Create() : RetainPrimary();
  MUST(cuCtxSetCurrent(kept));
  std::atomic<bool> asks{false};
  std::thread asker([&] {
    CUdeviceptr address = 0;
    MUST(cuCtxSetCurrent(kept));
    asks = true;
    facts->Say("code", static_cast<uint64_t>(cuMemAlloc_v2(&address, 64 * 1024 * kMiB)));
  });
  while (!asks) std::this_thread::yield();
  // Nothing tells that the look is under way; should it be over, the promise holds all the same.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  End(how, context, nullptr);
  asker.join();
  facts->Say("free", FreeMiB());
}

// Until its context is gone, or the limit is reached.
void MakeOn(CUcontext context, unsigned seed, std::atomic<uint64_t>* made) {
  constexpr const char* kWhats[] = {"linear", "pitched", "piece", "array", "small-array"};
  MUST(cuCtxSetCurrent(context));
  while (Make(kWhats[(rand_r(&seed) >> 4) % static_cast<int>(std::size(kWhats))]) == CUDA_SUCCESS) {
    ++*made;
  }
}

void Storm(simtest::Facts* facts, int thread_count, int rounds) {
  CUcontext kept = Create();
  const uint64_t free_mib = FreeMiB();
  uint64_t left = 0;
  for (int round = 0; round < rounds; ++round) {
    CUcontext context = RetainPrimary();
    std::atomic<uint64_t> made{0};
    std::vector<std::thread> makers;
    for (int i = 0; i < thread_count; ++i) {
      makers.emplace_back(MakeOn, context, static_cast<unsigned>(round * 7919 + i), &made);
    }
    const auto enough = static_cast<uint64_t>(round % 16);
    while (made < enough) std::this_thread::yield();
    MUST(cuDevicePrimaryCtxReset_v2(0));
    for (std::thread& each : makers) each.join();
    MUST(cuCtxSetCurrent(kept));
    // What is shown may be overhead that the next request near the limit sets right.
    left += FreeMiB() != free_mib && RoomMiB() != free_mib;
    MUST(cuDevicePrimaryCtxRelease_v2(0));
  }
  facts->Say("left", left);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  MUST(cuInit(0));
  simtest::Facts facts;
  if (strcmp(argv[1], "late") == 0) Late(&facts, argv[2], argv[3]);
  if (strcmp(argv[1], "looked-at") == 0) LookedAt(&facts, argv[2]);
  if (strcmp(argv[1], "storm") == 0) Storm(&facts, atoi(argv[2]), atoi(argv[3]));
  return 0;
}
