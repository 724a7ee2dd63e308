// A stream that waits for a value is full, and a thread waits in the driver to put more there. What
// other threads can do meanwhile, and what they wait for.
// link: cuda
// flags: -pthread
//
//   full_stream FILL   FILL: launch, record or set. One more thread launches into another stream
//                      behind the same gate all the time.
//
// Prints {"put": operations behind the gate until the thread waited, NAME: code of a call made
// meanwhile, or -1 where it waited until the gate was opened, ..., "done": 1 when all ended}. Calls
// whose name ends in "elsewhere" are made in another context, with nothing of the first one's.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "support/time_program.h"

using namespace timing;

namespace {

constexpr int kOperations = 3'000;
constexpr int kManyLaunches = 300;
constexpr int kPatienceMs = 1'000;

// What lies in one context.
struct Place {
  CUcontext context;
  CUfunction spin;
  CUstream stream;
  CUstream ending;
  CUevent event;
  CUdeviceptr memory;
  CUdeviceptr freed;

  CUresult Spin(CUstream into, unsigned long long ns) const {
    void* params[] = {&ns};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, into, params, nullptr);
  }
};

const char* fill = "";
CUstream full = nullptr;
CUstream beside = nullptr;
CUevent mark = nullptr;
Place here;
Place elsewhere;
std::atomic<int> put{0};
std::atomic<bool> is_over{false};

Place MakePlace(CUcontext context) {
  Place place = {};
  place.context = context;
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuModuleGetFunction(&place.spin, module, "gpufence_spin_ns"));
  place.stream = NewStream();
  place.ending = NewStream();
  place.event = NewEvent();
  MUST(cuMemAlloc_v2(&place.memory, 4096));
  MUST(cuMemAlloc_v2(&place.freed, 4 << 20));
  // What short kernels take is known, and nothing was long ago: so many are let through at once.
  for (int i = 0; i < 200; ++i) MUST(place.Spin(place.stream, kUs));
  MUST(place.Spin(place.ending, kUs));
  MUST(cuEventRecord(place.event, place.stream));
  MUST(cuCtxSynchronize());
  return place;
}

CUresult PutOne() {
  if (fill[0] == 'l') return here.Spin(full, kUs);
  if (fill[0] == 'r') return cuEventRecord(mark, full);
  return cuMemsetD8Async(here.memory, 1, 64, full);
}

void* Fill(void*) {
  MUST(cuCtxSetCurrent(here.context));
  for (int i = 0; i < kOperations; ++i) {
    MUST(PutOne());
    ++put;
  }
  is_over = true;
  return nullptr;
}

// The last of them have no marker when the others begin to wait.
void* LaunchBeside(void*) {
  MUST(cuCtxSetCurrent(here.context));
  while (!is_over) {
    MUST(here.Spin(beside, kUs));
    usleep(500);
  }
  return nullptr;
}

CUresult LaunchMany(const Place& place) {
  CUresult rc = CUDA_SUCCESS;
  for (int i = 0; i < kManyLaunches && rc == CUDA_SUCCESS; ++i) {
    rc = place.Spin(place.stream, 20 * kUs);
  }
  return rc;
}

CUresult LaunchAndEnd(const Place& place) {
  const CUresult rc = place.Spin(place.ending, kUs);
  return rc == CUDA_SUCCESS ? cuStreamDestroy_v2(place.ending) : rc;
}

CUresult Allocate() {
  CUdeviceptr memory = 0;
  return cuMemAlloc_v2(&memory, 4 << 20);
}

CUresult Ask() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  return cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

CUresult MakeStream() {
  CUstream made = nullptr;
  return cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
}

struct Call {
  const char* name;
  Place* place;
  CUresult (*make)(const Place&);
  std::atomic<int> code{-1};
  pthread_t thread = {};
};

// Those that wait come last, and then once more what nothing here concerns.
Call calls[] = {
    {"sync", &here, [](const Place& p) { return cuStreamSynchronize(p.stream); }},
    {"query event", &here, [](const Place& p) { return cuEventQuery(p.event); }},
    {"query another", &here, [](const Place& p) { return cuStreamQuery(p.stream); }},
    {"set", &here, [](const Place& p) { return cuMemsetD8Async(p.memory, 1, 64, p.stream); }},
    {"wait event", &here, [](const Place& p) { return cuStreamWaitEvent(p.stream, p.event, 0); }},
    {"allocate", &here, [](const Place&) { return Allocate(); }},
    {"ask", &here, [](const Place&) { return Ask(); }},
    {"make stream", &here, [](const Place&) { return MakeStream(); }},
    {"end stream", &here, [](const Place& p) { return cuStreamDestroy_v2(p.ending); }},
    {"launch elsewhere", &elsewhere, LaunchMany},
    {"sync elsewhere", &elsewhere, [](const Place& p) { return cuStreamSynchronize(p.stream); }},
    {"end stream elsewhere", &elsewhere, LaunchAndEnd},
    {"free elsewhere", &elsewhere, [](const Place& p) { return cuMemFree_v2(p.freed); }},
    {"sync all elsewhere", &elsewhere, [](const Place&) { return cuCtxSynchronize(); }},
    {"sync event", &here, [](const Place& p) { return cuEventSynchronize(p.event); }},
    {"query", &here, [](const Place&) { return cuStreamQuery(full); }},
    {"launch", &here, [](const Place& p) { return p.Spin(p.stream, kUs); }},
    {"record", &here, [](const Place& p) { return cuEventRecord(p.event, p.stream); }},
    {"free", &here, [](const Place& p) { return cuMemFree_v2(p.freed); }},
    {"sync again", &here, [](const Place& p) { return cuStreamSynchronize(p.stream); }},
    {"launch again elsewhere", &elsewhere, LaunchMany},
    {"sync all again elsewhere", &elsewhere, [](const Place&) { return cuCtxSynchronize(); }},
};

void* Make(void* argument) {
  auto* call = static_cast<Call*>(argument);
  MUST(cuCtxSetCurrent(call->place->context));
  call->code = call->make(*call->place);
  return nullptr;
}

int CodeOf(Call* call) {
  if (pthread_create(&call->thread, nullptr, Make, call) != 0) exit(1);
  for (int ms = 0; ms < kPatienceMs && call->code == -1; ++ms) usleep(1'000);
  return call->code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  fill = argv[1];
  const Gpu gpu;
  here = MakePlace(gpu.context);
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, gpu.device));
  elsewhere = MakePlace(other);
  MUST(cuCtxSetCurrent(gpu.context));
  full = NewStream();
  beside = NewStream();
  mark = NewEvent();
  CUstream opening = NewStream();
  CUdeviceptr gate = 0;
  MUST(cuMemAlloc_v2(&gate, 4096));
  MUST(cuMemsetD8_v2(gate, 0, 4096));
  for (const CUstream stream : {full, beside}) {
    for (int i = 0; i < 200; ++i) MUST(here.Spin(stream, kUs));
  }
  MUST(cuCtxSynchronize());
  MUST(here.Spin(here.ending, kUs));

  MUST(cuStreamWaitValue32_v2(beside, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  MUST(cuStreamWaitValue32_v2(full, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  pthread_t thread;
  pthread_t launcher;
  if (pthread_create(&launcher, nullptr, LaunchBeside, nullptr) != 0) return 1;
  usleep(5'000);
  if (pthread_create(&thread, nullptr, Fill, nullptr) != 0) return 1;
  for (int seen = -1; seen != put;) {
    seen = put;
    usleep(200'000);
  }
  Facts facts;
  facts.Say("put", put);
  for (Call& call : calls) facts.Say(call.name, CodeOf(&call));
  MUST(cuStreamWriteValue32_v2(opening, gate, 1, 0));
  pthread_join(thread, nullptr);
  pthread_join(launcher, nullptr);
  for (Call& call : calls) pthread_join(call.thread, nullptr);
  MUST(cuCtxSynchronize());
  facts.Say("done", is_over);
  return 0;
}
