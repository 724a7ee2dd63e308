// A program that is called back from inside of the driver's calls, as by a tool that subscribed to
// them, and does there what a limit must hold: it allocates, launches, or never returns.
// link: cuda nvml
// flags: -rdynamic -pthread -fexceptions
//
//   callbacks allocate CALL    the first callback of CALL allocates pieces until one is refused
//   callbacks jump CALL        callbacks of CALL leave by siglongjmp, then the program goes on
//   callbacks throw CALL       the same by an exception
//   callbacks launch CALL      the first callbacks of CALL launch a kernel
//   callbacks lose CALL        a child whose small pieces, arrays and pools are left by siglongjmp
//
// Prints {"calls": of CALL, "granted": MiB to the callback, "room": MiB that fit below the limit
// afterwards, "other room": the same as another thread finds it}. lose: {"calls", "room", "held":
// MiB that NVML lists for the child when nothing more is granted, "later": MiB that fit once the
// child has ended}.
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "support/fence_program.h"

namespace {

using simtest::kMiB;

constexpr uint64_t kPieceMiB = 64;
constexpr int kRounds = 20;

const char* called = "";
thread_local void (*react)() = nullptr;
uint64_t calls = 0;
uint64_t granted_mib = 0;
sigjmp_buf way_out;
CUfunction kernel = nullptr;

void AllocateAll() {
  CUdeviceptr piece = 0;
  while (cuMemAlloc_v2(&piece, kPieceMiB * kMiB) == CUDA_SUCCESS) granted_mib += kPieceMiB;
}

void Jump() { siglongjmp(way_out, 1); }

struct Thrown {};
void Throw() { throw Thrown(); }

void Launch() {
  if (fencetest::Launch(kernel) == CUDA_SUCCESS) ++granted_mib;
}

// What the driver does not do again while it reacts.
void React(void (*how)()) { react = how; }

// Every call that may run into the callback.
void Call() {
  CUdeviceptr piece = 0;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (cuMemAlloc_v2(&piece, kPieceMiB * kMiB) == CUDA_SUCCESS) cuMemFree_v2(piece);
  cuMemGetInfo_v2(&free_bytes, &total_bytes);
  fencetest::Launch(kernel);
  cuCtxSynchronize();
}

// The same of memory that shares chunks or comes from a pool.
void CallForPieces() {
  CUdeviceptr piece = 0;
  size_t pitch = 0;
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR small = {
      .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  if (cuMemAlloc_v2(&piece, 4096) == CUDA_SUCCESS) cuMemFree_v2(piece);
  if (cuMemAllocPitch_v2(&piece, &pitch, 64, 64, 4) == CUDA_SUCCESS) cuMemFree_v2(piece);
  if (cuMemAllocManaged(&piece, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS) cuMemFree_v2(piece);
  if (cuArrayCreate_v2(&array, &small) == CUDA_SUCCESS) cuArrayDestroy(array);
  if (cuMemAllocAsync(&piece, 4096, nullptr) == CUDA_SUCCESS) cuMemFreeAsync(piece, nullptr);
  cuCtxSynchronize();
}

void Leave(void (*how)(), void (*call)() = Call) {
  for (int round = 0; round < kRounds; ++round) {
    React(how);
    try {
      if (sigsetjmp(way_out, 0) == 0) call();
    } catch (const Thrown&) {
    }
  }
}

struct Lost {
  uint64_t calls;
  uint64_t room_mib;
  uint64_t held_mib;
};

Lost LosePieces() {
  simtest::UseDevice(0);
  CallForPieces();
  Leave(Jump, CallForPieces);
  React(nullptr);
  const uint64_t room_mib = fencetest::RoomMiB();
  AllocateAll();
  CUdeviceptr piece = 0;
  while (cuMemAlloc_v2(&piece, 4096) == CUDA_SUCCESS) {
  }
  return {calls, room_mib, fencetest::ListedMiB()};
}

int LoseInChild() {
  void* shared =
      mmap(nullptr, sizeof(Lost), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* lost = new (shared) Lost();
  const pid_t child = fork();
  if (child == 0) {
    *lost = LosePieces();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  simtest::UseDevice(0);
  simtest::Facts facts;
  facts.Say("calls", lost->calls);
  facts.Say("room", lost->room_mib);
  facts.Say("held", lost->held_mib);
  facts.Say("later", fencetest::RoomMiB());
  return status;
}

}  // namespace

extern "C" void gpufence_sim_callback(const char* name) {
  if (react == nullptr || strcmp(name, called) != 0) return;
  void (*how)() = react;
  react = nullptr;
  ++calls;
  how();
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto is = [&](const char* what) { return strcmp(argv[1], what) == 0; };
  if (is("lose")) {
    called = argv[2];
    return LoseInChild();
  }
  CUcontext context = simtest::UseDevice(0);
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, fencetest::kKernels));
  kernel = fencetest::Function(module, "plain");
  Call();
  called = argv[2];
  if (is("allocate")) {
    React(AllocateAll);
    Call();
  } else if (is("launch")) {
    for (int round = 0; round < kRounds; ++round) {
      React(Launch);
      Call();
    }
  } else {
    Leave(is("jump") ? Jump : Throw);
  }
  React(nullptr);
  Call();
  uint64_t other_room = 0;
  std::thread([&] {
    MUST(cuCtxSetCurrent(context));
    other_room = fencetest::RoomMiB();
  }).join();
  simtest::Facts facts;
  facts.Say("calls", calls);
  facts.Say("granted", granted_mib);
  facts.Say("room", fencetest::RoomMiB());
  facts.Say("other room", other_room);
  return 0;
}
