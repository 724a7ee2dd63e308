// The codes that launches, streams and events answer to wrong or special arguments. With an
// argument also to handles that are none, or none any more, which a real driver may die of.
// link: cuda
#include "support/time_program.h"

using namespace timing;

namespace {

CUresult Launch(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_z,
                unsigned shared, CUstream stream, void** params, void** extra = nullptr) {
  return cuLaunchKernel(f, grid_x, grid_y, 1, block_x, 1, block_z, shared, stream, params, extra);
}

void Launches(const Gpu& gpu, Facts& facts) {
  CUfunction plain = gpu.Function("plain");
  unsigned long long ns = kUs;
  void* params[] = {&ns};
  facts.Code("no grid", Launch(plain, 0, 1, 1, 1, 0, nullptr, nullptr));
  facts.Code("grid y", Launch(plain, 1, 65536, 1, 1, 0, nullptr, nullptr));
  facts.Code("block", Launch(plain, 1, 1, 1025, 1, 0, nullptr, nullptr));
  facts.Code("block z", Launch(plain, 1, 1, 1, 65, 0, nullptr, nullptr));
  facts.Code("shared", Launch(plain, 1, 1, 1, 1, 49 << 10, nullptr, nullptr));
  facts.Code("set shared",
             cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  facts.Code("shared after opting in", Launch(plain, 1, 1, 1, 1, 49 << 10, nullptr, nullptr));
  facts.Code("no parameters", Launch(gpu.spin, 1, 1, 1, 1, 0, nullptr, nullptr));
  facts.Code("no function", Launch(nullptr, 1, 1, 1, 1, 0, nullptr, nullptr));
  size_t bytes = sizeof(ns);
  void* extra[] = {reinterpret_cast<void*>(1), &ns, reinterpret_cast<void*>(2), &bytes, nullptr};
  facts.Code("packed parameters", Launch(gpu.spin, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  facts.Code("both forms", Launch(gpu.spin, 1, 1, 1, 1, 0, nullptr, params, extra));
  facts.Code("cooperative",
             cuLaunchCooperativeKernel(plain, 8, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
  facts.Code("cooperative too large",
             cuLaunchCooperativeKernel(plain, 1 << 20, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
  MUST(cuCtxSynchronize());
}

void OtherContext(const Gpu& gpu, Facts& facts) {
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, gpu.device));
  CUstream stream = NewStream();
  facts.Code("function of another context",
             Launch(gpu.Function("plain"), 1, 1, 1, 1, 0, stream, nullptr));
  MUST(cuCtxDestroy_v2(other));
}

void Streams(const Gpu& gpu, Facts& facts) {
  CUstream stream = NewStream();
  facts.Code("stream flags", cuStreamCreate(&stream, 8));
  facts.Code("destroy legacy", cuStreamDestroy_v2(nullptr));
  MUST(gpu.Spin(stream, kMs));
  facts.Code("destroy busy", cuStreamDestroy_v2(stream));
  facts.Code("synchronise the rest", cuCtxSynchronize());
  facts.Code("callback flags",
             cuStreamAddCallback(nullptr, [](CUstream, CUresult, void*) {}, nullptr, 1));
}

void Events(const Gpu& gpu, Facts& facts) {
  float milliseconds = 0;
  CUevent fresh = NewEvent();
  CUevent untimed = NewEvent(CU_EVENT_DISABLE_TIMING);
  facts.Code("unrecorded query", cuEventQuery(fresh));
  facts.Code("unrecorded synchronise", cuEventSynchronize(fresh));
  facts.Code("unrecorded elapsed", cuEventElapsedTime(&milliseconds, fresh, fresh));
  MUST(gpu.Spin(nullptr, 5 * kMs));
  MUST(cuEventRecord(fresh, nullptr));
  MUST(cuEventRecord(untimed, nullptr));
  facts.Code("elapsed while busy", cuEventElapsedTime(&milliseconds, fresh, fresh));
  MUST(cuCtxSynchronize());
  facts.Code("untimed elapsed", cuEventElapsedTime(&milliseconds, fresh, untimed));
  facts.Code("interprocess with timing", cuEventCreate(&fresh, CU_EVENT_INTERPROCESS));
  facts.Code("event flags", cuEventCreate(&fresh, 64));
}

void Wild(const Gpu& gpu, Facts& facts) {
  CUfunction plain = gpu.Function("plain");
  auto* invented = reinterpret_cast<CUstream>(uintptr_t{0x1234560});
  facts.Code("invented stream", Launch(plain, 1, 1, 1, 1, 0, invented, nullptr));
  CUstream stream = NewStream();
  CUevent event = NewEvent();
  MUST(cuStreamDestroy_v2(stream));
  MUST(cuEventDestroy_v2(event));
  facts.Code("destroyed stream", cuStreamQuery(stream));
  facts.Code("destroyed event", cuEventQuery(event));
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, gpu.device));
  stream = NewStream();
  event = NewEvent();
  MUST(cuCtxDestroy_v2(other));
  facts.Code("stream of an ended context", cuStreamQuery(stream));
  facts.Code("event of an ended context", cuEventQuery(event));
}

}  // namespace

int main(int argc, char**) {
  const Gpu gpu;
  Facts facts;
  Launches(gpu, facts);
  OtherContext(gpu, facts);
  Streams(gpu, facts);
  Events(gpu, facts);
  if (argc > 1) Wild(gpu, facts);
  facts.Code("no context", cuCtxSetCurrent(nullptr));
  CUstream stream = nullptr;
  facts.Code("stream without context", cuStreamCreate(&stream, 0));
  facts.Code("query without context", cuStreamQuery(nullptr));
  return 0;
}
