// Copies and fills: the bytes, how long they take, which engines they use, who waits.
// link: cuda
#include "support/time_program.h"

using namespace timing;

namespace {

constexpr size_t kBytes = 50 << 20;

struct Places {
  CUdeviceptr device = 0;
  CUdeviceptr other = 0;
  unsigned char* pinned = nullptr;
  unsigned char* pageable = nullptr;

  Places() {
    MUST(cuMemAlloc_v2(&device, kBytes));
    MUST(cuMemAlloc_v2(&other, kBytes));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
    pageable = static_cast<unsigned char*>(malloc(kBytes));
    for (size_t i = 0; i < kBytes; ++i) pinned[i] = static_cast<unsigned char>(i * 7);
  }
};

template <typename Act>
double TakesUs(const Gpu& gpu, Act act) {
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, 100 * kMs));
  CUevent start = Mark(stream);
  act(stream);
  return ElapsedUs(start, Mark(stream));
}

void Durations(const Gpu& gpu, const Places& at, Facts& facts) {
  facts.Say("in", TakesUs(gpu, [&](CUstream stream) {
              MUST(cuMemcpyHtoDAsync_v2(at.device, at.pinned, kBytes, stream));
            }));
  facts.Say("out", TakesUs(gpu, [&](CUstream stream) {
              MUST(cuMemcpyDtoHAsync_v2(at.pinned, at.device, kBytes, stream));
            }));
  facts.Say("local", TakesUs(gpu, [&](CUstream stream) {
              MUST(cuMemcpyDtoDAsync_v2(at.other, at.device, kBytes, stream));
            }));
  facts.Say("fill", TakesUs(gpu, [&](CUstream stream) {
              MUST(cuMemsetD8Async(at.other, 1, kBytes, stream));
            }));
  facts.Say("tiny", TakesUs(gpu, [&](CUstream stream) {
              MUST(cuMemcpyHtoDAsync_v2(at.device, at.pinned, 4, stream));
            }));
  // A copy runs beside a kernel that fills the device, a fill does not.
  facts.Say("copy beside a kernel", TakesUs(gpu, [&](CUstream stream) {
              CUstream copies = NewStream();
              CUevent begin = Mark(stream);
              MUST(cuStreamWaitEvent(copies, begin, 0));
              MUST(gpu.Spin(stream, kMs, 100'000));
              MUST(cuMemcpyHtoDAsync_v2(at.device, at.pinned, kBytes, copies));
              CUevent done = Mark(copies);
              MUST(cuStreamWaitEvent(stream, done, 0));
            }));
}

void Waiting(const Gpu& gpu, const Places& at, Facts& facts) {
  CUstream stream = NewStream();
  MUST(gpu.Spin(stream, 20 * kMs));
  MUST(cuMemcpyHtoDAsync_v2(at.device, at.pageable, 4, stream));
  facts.Code("pageable in returns at once", cuStreamQuery(stream));
  MUST(cuMemcpyDtoHAsync_v2(at.pageable, at.device, 4, stream));
  facts.Code("pageable out waits", cuStreamQuery(stream));
  MUST(gpu.Spin(nullptr, 20 * kMs));
  MUST(cuMemcpyDtoD_v2(at.other, at.device, 4));
  facts.Code("device to device returns at once", cuStreamQuery(nullptr));
  MUST(cuMemcpyDtoH_v2(at.pinned, at.device, 4));
  facts.Code("device to host waits", cuStreamQuery(nullptr));
}

// All the way round: host, device, device, array, host.
void RoundTrip(const Places& at, Facts& facts) {
  for (size_t i = 0; i < 4096; ++i) at.pinned[i] = static_cast<unsigned char>(i * 7);
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR_v2 shape = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  MUST(cuArrayCreate_v2(&array, &shape));
  MUST(cuMemcpyHtoD_v2(at.device, at.pinned, 4096));
  MUST(cuMemcpyDtoD_v2(at.other, at.device, 4096));
  CUDA_MEMCPY2D_v2 in = {};
  in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  in.srcDevice = at.other;
  in.srcPitch = 64;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  in.WidthInBytes = 64;
  in.Height = 64;
  MUST(cuMemcpy2D_v2(&in));
  CUDA_MEMCPY2D_v2 out = {};
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.srcXInBytes = 8;
  out.srcY = 2;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = at.pageable;
  out.dstPitch = 100;
  out.WidthInBytes = 16;
  out.Height = 3;
  MUST(cuMemcpy2D_v2(&out));
  int wrong = 0;
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 16; ++x) {
      const auto expected = static_cast<unsigned char>(((y + 2) * 64 + x + 8) * 7);
      if (at.pageable[y * 100 + x] != expected) ++wrong;
    }
  }
  facts.Say("wrong bytes", wrong);
  out.srcY = 62;
  facts.Code("beyond the array", cuMemcpy2D_v2(&out));
  MUST(cuMemsetD2D16_v2(at.device, 128, 0x1234, 4, 2));
  unsigned short rows[2][64] = {};
  MUST(cuMemcpyDtoH_v2(rows, at.device, sizeof(rows)));
  facts.Say("filled", rows[1][3]);
  facts.Say("beside the fill", rows[1][4] != 0x1234 ? 1 : 0);
}

void Codes(const Places& at, Facts& facts) {
  facts.Code("no destination", cuMemcpyHtoD_v2(0, at.pinned, 4));
  facts.Code("far beyond the end", cuMemcpyHtoD_v2(at.device, at.pinned, size_t{1} << 40));
  facts.Code("nothing", cuMemcpyHtoD_v2(at.device, at.pinned, 0));
  facts.Code("odd fill", cuMemsetD32_v2(at.device + 1, 0, 1));
  CUdeviceptr dsts[] = {at.device, 0};
  CUdeviceptr srcs[] = {at.other, at.other};
  size_t sizes[] = {4, 4};
  size_t starts[] = {0};
  size_t failed = 0;
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CUstream stream = NewStream();
  facts.Code("batch",
             cuMemcpyBatchAsync(dsts, srcs, sizes, 1, &attributes, starts, 1, &failed, stream));
  facts.Code("batch with a bad one",
             cuMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, starts, 1, &failed, stream));
  facts.Say("the bad one", static_cast<double>(failed));
  facts.Code("batch in the legacy stream",
             cuMemcpyBatchAsync(dsts, srcs, sizes, 1, &attributes, starts, 1, &failed, nullptr));
}

}  // namespace

int main() {
  const Gpu gpu;
  const Places at;
  Facts facts;
  Durations(gpu, at, facts);
  Waiting(gpu, at, facts);
  RoundTrip(at, facts);
  Codes(at, facts);
  return 0;
}
