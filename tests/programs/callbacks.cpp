// A program that is called back from inside of the driver's calls, as by a tool that subscribed to
// them, and does there what a limit must hold: it allocates, launches, or never returns.
// link: cuda
// flags: -rdynamic -pthread -fexceptions
//
//   callbacks allocate CALL    the first callback of CALL allocates pieces until one is refused
//   callbacks jump CALL        callbacks of CALL leave by siglongjmp, then the program goes on
//   callbacks throw CALL       the same by an exception
//   callbacks launch CALL      the first callbacks of CALL launch a kernel
//
// Prints {"calls": of CALL, "granted": MiB to the callback, "room": MiB that fit below the limit
// afterwards, "other room": the same as another thread finds it}.
#include <setjmp.h>

#include <thread>

#include "fence_program.h"

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

void Leave(void (*how)()) {
  for (int round = 0; round < kRounds; ++round) {
    React(how);
    try {
      if (sigsetjmp(way_out, 0) == 0) Call();
    } catch (const Thrown&) {
    }
  }
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
