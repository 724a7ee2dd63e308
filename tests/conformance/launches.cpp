// link: cuda
// flags: -Wl,-z,lazy
// Facts: every door through which a kernel reaches the GPU, and how wrong launches are refused.

#include <functional>
#include <string>

#include "gpu.h"

namespace conformance {
namespace {

constexpr unsigned long long kSpinNs = 5'000'000;

// Runs one launch between two timing events: did it take the kernel's time?
void Door(Facts& facts, const std::string& name, CUstream stream,
          const std::function<CUresult()>& launch) {
  Event start(CU_EVENT_DEFAULT);
  Event end(CU_EVENT_DEFAULT);
  float milliseconds = 0;
  cuEventRecord(start.get(), stream);
  facts.Code("door." + name, launch());
  cuEventRecord(end.get(), stream);
  cuEventSynchronize(end.get());
  cuEventElapsedTime(&milliseconds, start.get(), end.get());
  facts.Is("door." + name + ".took_its_time", milliseconds >= 4.99f);
  cuCtxSynchronize();
}

CUlaunchConfig OneThread(CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}

void ModernDoors(Facts& facts, const Kernels& kernels) {
  Stream stream;
  unsigned long long spin_ns = kSpinNs;
  void* params[] = {&spin_ns};
  CUfunction spin = kernels.spin;
  Door(facts, "cuLaunchKernel", stream.get(),
       [&] { return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream.get(), params, nullptr); });
  Door(facts, "cuLaunchKernel_ptsz", stream.get(), [&] {
    return cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, stream.get(), params, nullptr);
  });
  Door(facts, "cuLaunchKernel_ptsz on null", reinterpret_cast<CUstream>(2),
       [&] { return cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr); });
  const CUlaunchConfig config = OneThread(stream.get());
  Door(facts, "cuLaunchKernelEx", stream.get(),
       [&] { return cuLaunchKernelEx(&config, spin, params, nullptr); });
  Door(facts, "cuLaunchCooperativeKernel", stream.get(),
       [&] { return cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream.get(), params); });
  CUDA_LAUNCH_PARAMS one{};
  one.function = spin;
  one.gridDimX = one.gridDimY = one.gridDimZ = 1;
  one.blockDimX = one.blockDimY = one.blockDimZ = 1;
  one.hStream = stream.get();
  one.kernelParams = params;
  Door(facts, "cuLaunchCooperativeKernelMultiDevice", stream.get(),
       [&] { return cuLaunchCooperativeKernelMultiDevice(&one, 1, 0); });
  size_t bytes = sizeof spin_ns;
  void* extra[] = {reinterpret_cast<void*>(1), &spin_ns, reinterpret_cast<void*>(2), &bytes,
                   reinterpret_cast<void*>(0)};
  Door(facts, "cuLaunchKernel with a packed buffer", stream.get(),
       [&] { return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream.get(), nullptr, extra); });
}

void LegacyDoors(Facts& facts, const Kernels& kernels) {
  unsigned long long spin_ns = kSpinNs;
  CUfunction spin = kernels.spin;
  Stream stream;
  facts.Code("legacy.cuFuncSetBlockShape", cuFuncSetBlockShape(spin, 1, 1, 1));
  facts.Code("legacy.cuFuncSetSharedSize", cuFuncSetSharedSize(spin, 0));
  facts.Code("legacy.cuParamSetSize", cuParamSetSize(spin, sizeof spin_ns));
  facts.Code("legacy.cuParamSetv", cuParamSetv(spin, 0, &spin_ns, sizeof spin_ns));
  Door(facts, "cuLaunch", nullptr, [&] { return cuLaunch(spin); });
  Door(facts, "cuLaunchGrid", nullptr, [&] { return cuLaunchGrid(spin, 1, 1); });
  Door(facts, "cuLaunchGridAsync", stream.get(),
       [&] { return cuLaunchGridAsync(spin, 1, 1, stream.get()); });
  facts.Code("legacy.block_shape_zero", cuFuncSetBlockShape(spin, 0, 1, 1));
  facts.Code("legacy.block_shape_too_large", cuFuncSetBlockShape(spin, 2048, 1, 1));
}

void LibraryKernel(Facts& facts) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  Stream stream;
  unsigned long long spin_ns = kSpinNs;
  void* params[] = {&spin_ns};
  facts.Code("library.load",
             cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  facts.Code("library.kernel", cuLibraryGetKernel(&kernel, library, "gpufence_spin_ns"));
  facts.Code("library.function", cuKernelGetFunction(&function, kernel));
  Door(facts, "cuLaunchKernel of a CUkernel", stream.get(), [&] {
    return cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream.get(),
                          params, nullptr);
  });
  Door(facts, "cuLaunchKernel of its function", stream.get(), [&] {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream.get(), params, nullptr);
  });
  facts.Code("library.unload", cuLibraryUnload(library));
}

void WrongShapes(Facts& facts, const Kernels& kernels) {
  struct Shape {
    const char* name;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
  };
  constexpr Shape kShapes[] = {
      {"grid_zero", {0, 1, 1}, {1, 1, 1}, 0},
      {"grid_y_zero", {1, 0, 1}, {1, 1, 1}, 0},
      {"block_zero", {1, 1, 1}, {0, 1, 1}, 0},
      {"block_1024", {1, 1, 1}, {1024, 1, 1}, 0},
      {"block_1025", {1, 1, 1}, {1025, 1, 1}, 0},
      {"block_too_many_threads", {1, 1, 1}, {64, 64, 1}, 0},
      {"block_z_65", {1, 1, 1}, {1, 1, 65}, 0},
      {"grid_y_65536", {1, 65536, 1}, {1, 1, 1}, 0},
      {"grid_x_beyond_31_bits", {0x80000000u, 1, 1}, {1, 1, 1}, 0},
      {"shared_48KiB", {1, 1, 1}, {1, 1, 1}, 48 * 1024},
      {"shared_64KiB_not_opted_in", {1, 1, 1}, {1, 1, 1}, 64 * 1024},
      {"shared_1GiB", {1, 1, 1}, {1, 1, 1}, 1024 * 1024 * 1024},
  };
  Stream stream;
  for (const Shape& shape : kShapes) {
    facts.Code(std::string("shape.") + shape.name,
               cuLaunchKernel(kernels.empty, shape.grid[0], shape.grid[1], shape.grid[2],
                              shape.block[0], shape.block[1], shape.block[2], shape.shared_bytes,
                              stream.get(), nullptr, nullptr));
  }
  facts.Code("shape.nothing_is_sticky", cuStreamSynchronize(stream.get()));
}

void WrongArguments(Facts& facts, const Kernels& kernels) {
  Stream stream;
  unsigned long long spin_ns = 1000;
  void* params[] = {&spin_ns};
  size_t bytes = sizeof spin_ns;
  void* extra[] = {reinterpret_cast<void*>(1), &spin_ns, reinterpret_cast<void*>(2), &bytes,
                   reinterpret_cast<void*>(0)};
  const auto launch = [&](CUfunction function, void** given, void** packed) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream.get(), given, packed);
  };
  facts.Code("argument.null_function", launch(nullptr, params, nullptr));
  facts.Code("argument.params_and_extra", launch(kernels.spin, params, extra));
  facts.Code("argument.needed_but_absent", launch(kernels.spin, nullptr, nullptr));
  bytes = 4;
  facts.Code("argument.packed_too_short", launch(kernels.spin, nullptr, extra));
  facts.Code("argument.ex_null_config", cuLaunchKernelEx(nullptr, kernels.empty, nullptr, nullptr));
  CUlaunchConfig config = OneThread(stream.get());
  config.numAttrs = 1;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.attrs = &attribute;
  facts.Code("argument.ex_cooperative", cuLaunchKernelEx(&config, kernels.empty, nullptr, nullptr));
  config.gridDimX = 1u << 20;
  facts.Code("argument.ex_cooperative_too_large",
             cuLaunchKernelEx(&config, kernels.empty, nullptr, nullptr));
  facts.Code(
      "argument.cooperative_too_large",
      cuLaunchCooperativeKernel(kernels.empty, 1u << 20, 1, 1, 1, 1, 1, 0, stream.get(), nullptr));
  facts.Code("argument.nothing_is_sticky", cuStreamSynchronize(stream.get()));
  CUcontext popped = nullptr;
  cuCtxPopCurrent_v2(&popped);
  facts.Code("argument.no_context_named_stream", launch(kernels.empty, nullptr, nullptr));
  facts.Code("argument.no_context_null_stream",
             cuLaunchKernel(kernels.empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  cuCtxPushCurrent_v2(popped);
  cuCtxSynchronize();
}

// How a launch with the other context's stream is taken.
void ForeignContext(Facts& facts, const Kernels& kernels, CUdevice device, CUcontext primary) {
  CUcontext extra = nullptr;
  cuCtxCreate_v2(&extra, 0, device);
  {
    Stream foreign;
    cuCtxSetCurrent(primary);
    facts.Code("foreign.stream", LaunchEmpty(kernels, foreign.get()));
    cuCtxSetCurrent(extra);
    facts.Code("foreign.function", LaunchEmpty(kernels, foreign.get()));
  }
  cuCtxDestroy_v2(extra);
  cuCtxSetCurrent(primary);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("launches");
  const CUdevice device = FirstDevice(facts);
  const CUcontext primary = UsePrimary(device);
  const Kernels kernels = LoadKernels();
  ModernDoors(facts, kernels);
  LegacyDoors(facts, kernels);
  LibraryKernel(facts);
  WrongShapes(facts, kernels);
  WrongArguments(facts, kernels);
  ForeignContext(facts, kernels, device, primary);
  return 0;
}
