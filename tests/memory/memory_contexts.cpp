// link: cuda nvml
// What contexts cost under a limit, and what they give back. `memory_contexts CASE` prints facts;
// room: MiB that still fit.
#include <unistd.h>

#include "raw_symbol.h"
#include "support/fence_program.h"

namespace {

using namespace fencetest;  // NOLINT(google-build-using-namespace): a test program's own helpers
using simtest::Facts;

CUcontext Create(CUdevice device = 0) {
  CUcontext context = nullptr;
  MUST(cuCtxCreate_v2(&context, 0, device));
  return context;
}

CUcontext RetainPrimary() {
  CUcontext primary = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  MUST(cuCtxSetCurrent(primary));
  return primary;
}

void TakeGiB() {
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, 1024 * kMiB));
}

void One(Facts* facts) {
  Create();
  facts->Say("room", RoomMiB());
  facts->Say("listed", ListedMiB());
}

void Two(Facts* facts) {
  Create();
  CUcontext second = Create();
  facts->Say("both", RoomMiB());
  MUST(cuCtxDestroy_v2(second));
  facts->Say("one", RoomMiB());
}

// Memory that nobody freed ends with its context; a second look finds nothing given back twice.
void Contents(Facts* facts) {
  CUcontext first = Create();
  TakeGiB();
  CUcontext second = Create();
  facts->Say("both", RoomMiB());
  MUST(cuCtxDestroy_v2(first));
  facts->Say("second", RoomMiB());
  TakeGiB();
  facts->Say("second with 1 GiB", RoomMiB());
  MUST(cuCtxDestroy(second));
  Create();
  facts->Say("third", RoomMiB());
}

// Three chunks: what is smaller than one, of both kinds.
void TakePieces() {
  CUdeviceptr address = 0;
  for (int i = 0; i < 3; ++i) MUST(cuMemAlloc_v2(&address, kMiB));
  MUST(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
}

void Pieces(Facts* facts) {
  CUcontext first = Create();
  TakePieces();
  CUcontext second = Create();
  TakePieces();
  facts->Say("both", RoomMiB());
  MUST(cuCtxDestroy_v2(first));
  facts->Say("second", RoomMiB());
  MUST(cuCtxDestroy(second));
  Create();
  facts->Say("third", RoomMiB());
}

void Primary(Facts* facts) {
  RetainPrimary();
  facts->Say("retained", RoomMiB());
  RetainPrimary();
  facts->Say("retained twice", RoomMiB());
  TakeGiB();
  MUST(cuDevicePrimaryCtxRelease_v2(0));
  facts->Say("released once", RoomMiB());
  MUST(cuDevicePrimaryCtxRelease(0));
  Create();
  facts->Say("released twice", RoomMiB());
}

void Reset(Facts* facts) {
  RetainPrimary();
  RetainPrimary();
  TakeGiB();
  MUST(cuDevicePrimaryCtxReset_v2(0));
  Create();
  facts->Say("room", RoomMiB());
}

// As long as there was but one context, nobody asks which is current: what a second one's memory is
// charged to ends with it all the same.
void BesidePrimary(Facts* facts) {
  CUcontext primary = RetainPrimary();
  TakeGiB();
  CUcontext second = Create();
  TakeGiB();
  TakePieces();
  facts->Say("both", RoomMiB());
  MUST(cuCtxDestroy_v2(second));
  MUST(cuCtxSetCurrent(primary));
  facts->Say("primary", RoomMiB());
  MUST(cuDevicePrimaryCtxRelease_v2(0));
  RetainPrimary();
  facts->Say("anew", RoomMiB());
}

// The same where the one context that we saw made is not the only one. Begins before cuInit.
void BesideUnseen(Facts* facts) {
  const auto raw_create =
      reinterpret_cast<decltype(&cuCtxCreate_v2)>(bench::RawSymbol("libcuda.so", "cuCtxCreate_v2"));
  MUST(reinterpret_cast<decltype(&cuInit)>(bench::RawSymbol("libcuda.so", "cuInit"))(0));
  CUcontext unseen = nullptr;
  MUST(raw_create(&unseen, 0, 0));
  CUcontext primary = RetainPrimary();
  MUST(cuCtxSetCurrent(unseen));
  TakeGiB();
  const uint64_t before = FreeMiB();
  MUST(cuCtxDestroy_v2(unseen));
  MUST(cuCtxSetCurrent(primary));
  facts->Say("more", FreeMiB() - before);
}

// One call of each kind that allocates in the current context.
void AskEach(Facts* facts) {
  const CUDA_ARRAY_DESCRIPTOR large = {
      .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  const CUDA_ARRAY_DESCRIPTOR small = {
      .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUdeviceptr address = 0;
  size_t pitch = 0;
  CUarray array = nullptr;
  facts->Code("linear", cuMemAlloc_v2(&address, 2 * kMiB));
  facts->Code("piece", cuMemAlloc_v2(&address, 512));
  facts->Code("pitch", cuMemAllocPitch_v2(&address, &pitch, kMiB, 2, 4));
  facts->Code("managed", cuMemAllocManaged(&address, 2 * kMiB, CU_MEM_ATTACH_GLOBAL));
  facts->Code("array", cuArrayCreate_v2(&array, &large));
  facts->Code("small array", cuArrayCreate_v2(&array, &small));
}

// A thread without a context is told that, by the driver or, without room, by us, and nothing is
// charged. `full`: there is no room.
void NoContext(Facts* facts, bool full) {
  CUcontext primary = RetainPrimary();
  CUdeviceptr address = 0;
  const uint64_t room = RoomMiB();
  if (full) MUST(cuMemAlloc_v2(&address, room * kMiB));
  MUST(cuCtxSetCurrent(nullptr));
  AskEach(facts);
  MUST(cuCtxSetCurrent(primary));
  if (full) MUST(cuMemFree_v2(address));
  facts->Say("kept", room - RoomMiB());
}

// The driver ends the primary context without our hearing of it, and deals its handle again.
void Behind(Facts* facts) {
  using Release = decltype(&cuDevicePrimaryCtxRelease_v2);
  const auto raw_release =
      reinterpret_cast<Release>(bench::RawSymbol("libcuda.so", "cuDevicePrimaryCtxRelease_v2"));
  CUcontext first = RetainPrimary();
  TakeGiB();
  MUST(raw_release(0));
  CUcontext second = RetainPrimary();
  facts->Say("same handle", first == second);
  // Before anything is allocated: addresses are dealt again, too, and would set it right.
  facts->Say("free", FreeMiB());
  facts->Say("room", RoomMiB());
  TakeGiB();
  MUST(cuDevicePrimaryCtxRelease_v2(0));
  Create();
  facts->Say("at the end", RoomMiB());
}

void Attached(Facts* facts) {
  CUcontext other = Create();
  CUcontext context = Create();
  CUcontext attached = nullptr;
  TakeGiB();
  MUST(cuCtxAttach(&attached, 0));
  MUST(cuCtxDetach(context));
  facts->Say("detached once", RoomMiB());
  MUST(cuCtxDetach(context));
  MUST(cuCtxSetCurrent(other));
  facts->Say("detached twice", RoomMiB());
}

// 64 MiB that are there before the first context, and between two.
void Physical(Facts* facts) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, 64 * kMiB, &prop, 0));
  CUcontext first = Create();
  facts->Say("first", RoomMiB());
  MUST(cuCtxDestroy_v2(first));
  RetainPrimary();
  facts->Say("second", RoomMiB());
  MUST(cuMemRelease(handle));
  facts->Say("released", RoomMiB());
}

CUgreenCtx CreateGreen(CUcontext* view) {
  CUdevResource all = {};
  CUdevResource part = {};
  CUdevResourceDesc desc = nullptr;
  unsigned groups = 1;
  MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  MUST(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
  MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
  CUgreenCtx green = nullptr;
  MUST(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  MUST(cuCtxFromGreenCtx(view, green));
  MUST(cuCtxSetCurrent(*view));
  return green;
}

void Green(Facts* facts) {
  CUcontext view = nullptr;
  CUgreenCtx green = CreateGreen(&view);
  TakeGiB();
  facts->Say("green", RoomMiB());
  MUST(cuGreenCtxDestroy(green));
  Create();
  facts->Say("destroyed", RoomMiB());
}

// What lies in a green context's view ends with it, beside a primary context that goes on.
void GreenBesidePrimary(Facts* facts, bool green_first) {
  CUcontext view = nullptr;
  CUgreenCtx green = green_first ? CreateGreen(&view) : nullptr;
  CUcontext primary = RetainPrimary();
  TakeGiB();
  if (!green_first) green = CreateGreen(&view);
  MUST(cuCtxSetCurrent(view));
  TakeGiB();
  facts->Say("green", RoomMiB());
  MUST(cuGreenCtxDestroy(green));
  MUST(cuCtxSetCurrent(primary));
  // Nothing is allocated: addresses are dealt again, and would set it right.
  facts->Say("destroyed", FreeMiB());
}

// The output stays as it was, and nothing is left of the attempt.
void Refused(Facts* facts) {
  auto* const untouched = reinterpret_cast<CUcontext>(0x77);
  CUcontext context = untouched;
  facts->Code("v1", cuCtxCreate(&context, 0, 0));
  facts->Code("v2", cuCtxCreate_v2(&context, 0, 0));
  facts->Code("v3", cuCtxCreate_v3(&context, nullptr, 0, 0, 0));
  facts->Code("v4", cuCtxCreate_v4(&context, nullptr, 0, 0));
  facts->Code("primary", cuDevicePrimaryCtxRetain(&context, 0));
  unsigned flags = 0;
  int active = 0;
  MUST(cuDevicePrimaryCtxGetState(0, &flags, &active));
  facts->Say("primary active", static_cast<uint64_t>(active));
  facts->Say("untouched", context == untouched);
  facts->Code("wrong device", cuCtxCreate_v2(&context, 0, 99));
  facts->Code("null", cuCtxCreate_v2(nullptr, 0, 0));
  facts->Say("listed", ListedMiB());
}

// Says "held", then waits to be told to end, or to be killed.
void Hold() {
  Create();
  TakeGiB();
  printf("held\n");
  fflush(stdout);
  simtest::AwaitLine();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto is = [&](const char* name) { return strcmp(argv[1], name) == 0; };
  if (!is("beside unseen")) MUST(cuInit(0));
  if (is("hold")) {
    Hold();
    return 0;
  }
  Facts facts;
  if (is("one")) One(&facts);
  if (is("two")) Two(&facts);
  if (is("contents")) Contents(&facts);
  if (is("pieces")) Pieces(&facts);
  if (is("primary")) Primary(&facts);
  if (is("reset")) Reset(&facts);
  if (is("beside primary")) BesidePrimary(&facts);
  if (is("beside unseen")) BesideUnseen(&facts);
  if (is("green beside primary")) GreenBesidePrimary(&facts, false);
  if (is("primary beside green")) GreenBesidePrimary(&facts, true);
  if (is("no context")) NoContext(&facts, false);
  if (is("no context, full")) NoContext(&facts, true);
  if (is("behind")) Behind(&facts);
  if (is("attached")) Attached(&facts);
  if (is("physical")) Physical(&facts);
  if (is("green")) Green(&facts);
  if (is("refused")) Refused(&facts);
  return 0;
}
