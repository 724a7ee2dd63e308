// Streams as things that are made, take device memory (the context gets channels for them) and end.
// How many bytes is the driver's affair; a stream beyond all that lived at once before is expected
// to take a chunk, and what it took is measured. Must not know what is put into them.
#include "hooks/cores.h"
#include "hooks/overhead.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// One more lives, or tries to. Channels of ended streams serve again: only beyond the most that
// ever lived at once is another expected, so threads that make and end streams do not book more and
// more.
uint32_t CountStream(FencedDevice* device) {
  return device->streams.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t ForeseenBytes(const FencedDevice* device, uint32_t living) {
  return living > device->most_streams.load(std::memory_order_relaxed) ? kChunkBytes : 0;
}

void RaiseMost(FencedDevice* device, uint32_t living) {
  uint32_t most = device->most_streams.load(std::memory_order_relaxed);
  while (living > most &&
         !device->most_streams.compare_exchange_weak(most, living, std::memory_order_relaxed)) {
  }
}

void UncountStream(FencedDevice* device) {
  uint32_t living = device->streams.load(std::memory_order_relaxed);
  while (living != 0 &&
         !device->streams.compare_exchange_weak(living, living - 1, std::memory_order_relaxed)) {
  }
}

template <typename Make>
CUresult Create(CUstream* out, Make make) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || out == nullptr) return make(out);
  CUstream made = nullptr;
  const uint32_t living = CountStream(device);
  const CUresult rc = CallThatGrows(
      device, ForeseenBytes(device, living), [&] { return make(&made); },
      [&] { return real::cuStreamDestroy_v2(made); });
  if (rc == CUDA_SUCCESS) {
    RaiseMost(device, living);
    *out = made;
  } else {
    UncountStream(device);
  }
  return rc;
}

// The driver keeps what it took, or gives it back: the next reading tells.
template <typename End>
CUresult Destroy(CUstream stream, End end) {
  const Hook hook;
  FencedDevice* device = hook.current_device();
  Cores* cores = ActiveCores();
  if (cores != nullptr && stream != nullptr) cores->markers.Forget(stream);
  const CUresult rc = end(stream);
  if (rc == CUDA_SUCCESS && device != nullptr) UncountStream(device);
  return rc;
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return gpufence::Create(phStream,
                          [=](CUstream* made) { return real::cuStreamCreate(made, Flags); });
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return gpufence::Create(phStream, [=](CUstream* made) {
    return real::cuStreamCreateWithPriority(made, flags, priority);
  });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  return gpufence::Create(phStream, [=](CUstream* made) {
    return real::cuGreenCtxStreamCreate(made, greenCtx, flags, priority);
  });
}

CUresult cuStreamDestroy(CUstream hStream) {
  return gpufence::Destroy(hStream, real::cuStreamDestroy);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return gpufence::Destroy(hStream, real::cuStreamDestroy_v2);
}

}  // extern "C"
