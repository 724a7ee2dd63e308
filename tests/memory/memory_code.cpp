// link: cuda nvml
// Modules, heap and stack limits and first launches under a limit. `memory_code CASE` prints facts;
// room: MiB that still fit.
#include <signal.h>

#include <string>

#include "support/fence_program.h"

namespace {

using namespace fencetest;  // NOLINT(google-build-using-namespace): a test program's own helpers
using simtest::Facts;

// Leaves `room_mib` below the limit.
void LeaveMiB(uint64_t room_mib) {
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, (RoomMiB() - room_mib) * kMiB));
}

void Globals(Facts* facts) {
  CUmodule module = nullptr;
  facts->Say("before", RoomMiB());
  MUST(cuModuleLoadData(&module, kGlobals));
  facts->Say("loaded", RoomMiB());
  MUST(cuModuleUnload(module));
  facts->Say("unloaded", RoomMiB());
}

void GlobalsRefused(Facts* facts) {
  LeaveMiB(32);
  auto* const untouched = reinterpret_cast<CUmodule>(0x77);
  CUmodule module = untouched;
  facts->Code("module", cuModuleLoadData(&module, kGlobals));
  facts->Say("untouched", module == untouched);
  facts->Say("room", RoomMiB());
  facts->Say("listed", ListedMiB());
}

// A library's variables come with the first context that asks for one of them.
void Library(Facts* facts) {
  CUlibrary library = nullptr;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  MUST(cuLibraryLoadData(&library, kGlobals, nullptr, nullptr, 0, nullptr, nullptr, 0));
  facts->Say("loaded", RoomMiB());
  MUST(cuLibraryGetGlobal(&address, &bytes, library, "table"));
  facts->Say("free", FreeMiB());
  facts->Say("asked", RoomMiB());
  MUST(cuLibraryUnload(library));
  facts->Say("unloaded", RoomMiB());
}

CUlibrary LoadLibrary(const char* image) {
  CUlibrary library = nullptr;
  MUST(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
  return library;
}

CUkernel KernelOf(CUlibrary library, const char* name) {
  CUkernel kernel = nullptr;
  MUST(cuLibraryGetKernel(&kernel, library, name));
  return kernel;
}

// So they do with the first function or launch of it, and with its module.
void Placed(Facts* facts) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUlibrary library = LoadLibrary(kGlobals);
  MUST(cuKernelGetFunction(&function, KernelOf(library, "touch")));
  facts->Say("function", FreeMiB());
  MUST(cuLibraryUnload(library));
  library = LoadLibrary(kGlobals);
  MUST(Launch(reinterpret_cast<CUfunction>(KernelOf(library, "touch"))));
  MUST(cuCtxSynchronize());
  facts->Say("launch", FreeMiB());
  MUST(cuLibraryUnload(library));
  library = LoadLibrary(kGlobals);
  MUST(cuLibraryGetModule(&module, library));
  facts->Say("module", FreeMiB());
  MUST(cuLibraryUnload(library));
  facts->Say("unloaded", FreeMiB());
}

// Where they do not fit, whoever asks is given nothing.
void PlacedRefused(Facts* facts) {
  auto* const function_before = reinterpret_cast<CUfunction>(0x77);
  auto* const module_before = reinterpret_cast<CUmodule>(0x77);
  CUfunction function = function_before;
  CUmodule module = module_before;
  CUdeviceptr address = 0x77;
  size_t bytes = 0x77;
  LeaveMiB(32);
  CUlibrary library = nullptr;
  const auto fresh = [&library] {
    if (library != nullptr) MUST(cuLibraryUnload(library));
    return library = LoadLibrary(kGlobals);
  };
  facts->Code("function", cuKernelGetFunction(&function, KernelOf(fresh(), "touch")));
  facts->Code("launch", Launch(reinterpret_cast<CUfunction>(KernelOf(fresh(), "touch"))));
  facts->Code("module", cuLibraryGetModule(&module, fresh()));
  facts->Code("variable", cuLibraryGetGlobal(&address, &bytes, fresh(), "table"));
  facts->Say("untouched", function == function_before && module == module_before &&
                              address == 0x77 && bytes == 0x77);
}

// What each brings is little. Nobody asks for memory or about it meanwhile, which would read it:
// what is charged is seen in the region, which the killed process leaves as it was.
void ManyLibraries() {
  std::string image = kGlobals;
  image.replace(image.find("67108864"), 8, "25165824");
  for (int i = 0; i < 16; ++i) {
    CUmodule module = nullptr;
    MUST(cuLibraryGetModule(&module, LoadLibrary(image.c_str())));
  }
  raise(SIGKILL);
}

// Their code comes with the first function that is asked for, where loading is lazy. Asking again
// brings nothing, and costs no look at the driver.
void ManyFunctions() {
  std::string image = kKernels;
  image.append("//").append(24 * kMiB - 1 - image.size() - 2, 'x');
  CUmodule modules[15] = {};
  for (int i = 0; i < 15; ++i) {
    MUST(cuModuleLoadData(&modules[i], image.c_str()));
  }
  for (CUmodule each : modules) Function(each, "plain");
  for (int i = 0; i < 1000; ++i) Function(modules[0], "plain");
  raise(SIGKILL);
}

// A kernel of a library serves in every context, and takes a stack in each.
void LaunchedInBoth(Facts* facts) {
  const auto kernel = reinterpret_cast<CUfunction>(KernelOf(LoadLibrary(kKernels), "deep"));
  facts->Code("first", Launch(kernel));
  MUST(cuCtxSynchronize());
  facts->Say("after first", RoomMiB());
  simtest::UseDevice(0);
  facts->Code("second", Launch(kernel));
  facts->Code("second again", Launch(kernel));
  facts->Say("after second", RoomMiB());
}

void Heap(Facts* facts) {
  facts->Say("before", RoomMiB());
  MUST(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 264 * kMiB));
  facts->Say("heap of 264 MiB", RoomMiB());
  MUST(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB));
  facts->Say("heap of 8 MiB", RoomMiB());
  facts->Code("heap of 8 GiB", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8192 * kMiB));
  facts->Code("stack of 64 KiB", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 65536));
  size_t heap = 0;
  MUST(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
  facts->Say("heap", heap / kMiB);
  facts->Code("driver's own refusal", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size_t{1} << 30));
  facts->Say("after", RoomMiB());
}

// Beside managed memory nobody can tell what of a heap went back; once it is gone, a view does.
void HeapBesideManaged(Facts* facts) {
  CUdeviceptr managed = 0;
  MUST(cuMemAllocManaged(&managed, 600 * kMiB, CU_MEM_ATTACH_GLOBAL));
  MUST(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 264 * kMiB));
  MUST(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB));
  MUST(cuMemFree_v2(managed));
  facts->Say("free", FreeMiB());
}

// 7 KiB more for each of 132 x 2048 threads: 1848 MiB.
void Launches(Facts* facts) {
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  facts->Code("plain", Launch(Function(module, "plain")));
  facts->Say("after plain", RoomMiB());
  facts->Code("deep", Launch(Function(module, "deep")));
  facts->Say("after deep", RoomMiB());
  facts->Code("deep again", Launch(Function(module, "deep")));
  facts->Code("deep_too", Launch(Function(module, "deep_too")));
  facts->Say("after deep_too", RoomMiB());
  facts->Code("deepest", Launch(Function(module, "deepest")));
  facts->Say("after deepest", RoomMiB());
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
  facts->Say("stack back", RoomMiB());
  facts->Code("deep once more", Launch(Function(module, "deep")));
  facts->Say("after deep once more", RoomMiB());
}

// A first launch inside a capture asks the driver nothing that would end the capture.
void Captured(Facts* facts) {
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (const char* name : {"plain", "deep", "deepest"}) {
    facts->Code(name, cuLaunchKernel(Function(module, name), 1, 1, 1, 32, 1, 1, 0, stream, nullptr,
                                     nullptr));
  }
  facts->Code("end", cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &nodes));
  facts->Say("nodes", nodes);
}

// Every door to a launch refuses the same kernel.
void Doors(Facts* facts) {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuLibraryGetKernel(&kernel, library, "deepest"));
  CUfunction f = Function(module, "deepest");
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  facts->Code("cuLaunchKernel", Launch(f));
  facts->Code("CUkernel", Launch(reinterpret_cast<CUfunction>(kernel)));
  facts->Code("cuLaunchKernel_ptsz",
              cuLaunchKernel_ptsz(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  facts->Code("cuLaunchKernelEx", cuLaunchKernelEx(&config, f, nullptr, nullptr));
  facts->Code("cuLaunchKernelEx_ptsz", cuLaunchKernelEx_ptsz(&config, f, nullptr, nullptr));
  facts->Code("cuLaunchCooperativeKernel",
              cuLaunchCooperativeKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
  facts->Code("cuLaunchCooperativeKernel_ptsz",
              cuLaunchCooperativeKernel_ptsz(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
  MUST(cuFuncSetBlockShape(f, 32, 1, 1));
  facts->Code("cuLaunch", cuLaunch(f));
  facts->Code("cuLaunchGrid", cuLaunchGrid(f, 1, 1));
  facts->Code("cuLaunchGridAsync", cuLaunchGridAsync(f, 1, 1, nullptr));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto is = [&](const char* name) { return strcmp(argv[1], name) == 0; };
  simtest::UseDevice(0);
  Facts facts;
  if (is("globals")) Globals(&facts);
  if (is("globals_refused")) GlobalsRefused(&facts);
  if (is("library")) Library(&facts);
  if (is("placed")) Placed(&facts);
  if (is("placed_refused")) PlacedRefused(&facts);
  if (is("many_libraries")) ManyLibraries();
  if (is("many_functions")) ManyFunctions();
  if (is("launched_in_both")) LaunchedInBoth(&facts);
  if (is("heap")) Heap(&facts);
  if (is("heap_beside_managed")) HeapBesideManaged(&facts);
  if (is("launches")) Launches(&facts);
  if (is("captured")) Captured(&facts);
  if (is("doors")) Doors(&facts);
  return 0;
}
