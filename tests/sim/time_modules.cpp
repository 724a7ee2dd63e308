// Modules and libraries: what is found in images, what it costs, what ends with what.
// link: cuda
#include "support/time_program.h"

using namespace timing;

namespace {

size_t FreeBytes() {
  size_t available = 0;
  size_t total = 0;
  MUST(cuMemGetInfo_v2(&available, &total));
  return available;
}

void Contents(const Gpu& gpu, Facts& facts) {
  CUfunction many = gpu.Function("many");
  CUfunction missing = nullptr;
  facts.Code("missing", cuModuleGetFunction(&missing, gpu.module, "nothing"));
  unsigned count = 0;
  MUST(cuModuleGetFunctionCount(&count, gpu.module));
  facts.Say("functions", count);
  size_t offset = 0;
  size_t bytes = 0;
  MUST(cuFuncGetParamInfo(many, 2, &offset, &bytes));
  facts.Say("third parameter at", static_cast<double>(offset));
  facts.Say("third parameter bytes", static_cast<double>(bytes));
  facts.Code("fourth parameter", cuFuncGetParamInfo(many, 3, &offset, &bytes));
  const char* name = nullptr;
  MUST(cuFuncGetName(&name, many));
  facts.Say("name", strcmp(name, "many"));
  CUdeviceptr variable = 0;
  MUST(cuModuleGetGlobal_v2(&variable, &bytes, gpu.module, "bytes"));
  facts.Say("variable bytes", static_cast<double>(bytes));
  facts.Code("fill the variable", cuMemsetD8_v2(variable, 1, bytes));
  CUfunction again = nullptr;
  MUST(cuModuleGetFunction(&again, gpu.module, "many"));
  facts.Say("same handle", again == many ? 1 : 0);
  int value = 0;
  MUST(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, many));
  facts.Say("threads", value);
  MUST(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, many, 256, 0));
  facts.Say("blocks of 256 per SM", value);
}

void Lifetimes(const Gpu& gpu, Facts& facts) {
  const size_t before = FreeBytes();
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  const size_t loaded = FreeBytes();
  facts.Say("lazy module costs", static_cast<double>(before - loaded));
  CUfunction spin = nullptr;
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  MUST(cuModuleGetFunction(&spin, module, "gpufence_spin_ns"));
  MUST(cuFuncIsLoaded(&state, spin));
  facts.Say("loaded by asking for it", static_cast<double>(state));
  MUST(cuFuncLoad(spin));
  facts.Say("loaded module costs", static_cast<double>(before - FreeBytes()));
  MUST(cuModuleUnload(module));
  facts.Say("left after the unload", static_cast<double>(before - FreeBytes()));
  facts.Code("function of an unloaded module", cuFuncLoad(spin));
  facts.Code("unload twice", cuModuleUnload(module));
  (void)gpu;
}

void Libraries(Facts& facts) {
  CUlibrary library = nullptr;
  MUST(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  MUST(cuLibraryGetKernel(&kernel, library, "named_150us"));
  CUstream stream = NewStream();
  // Launches accept kernels in place of functions.
  facts.Code("launch a kernel", cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1,
                                               1, 0, stream, nullptr, nullptr));
  CUfunction function = nullptr;
  MUST(cuKernelGetFunction(&function, kernel));
  facts.Code("launch its function",
             cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  MUST(cuStreamSynchronize(stream));
  facts.Code("missing kernel", cuLibraryGetKernel(&kernel, library, "nothing"));
  MUST(cuLibraryUnload(library));
  facts.Code("kernel of an unloaded library", cuKernelGetFunction(&function, kernel));
}

// Whatever compilers write around their kernels; the code itself is nonsense.
constexpr char kCompiled[] = R"(
.version 8.4
.target sm_90a, debug
.address_size 64
.file 1 "kernel.cu", 1700000000, 99
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 list);
.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .b8 fixed[128];
.const .align 4 .f32 table[2] = {0f3F800000, 0f40000000};
.weak .global .align 8 .u64 counter = 5;
.func (.param .b32 out) twice (.param .b32 in) { ret; }
.pragma "nounroll";
.visible .entry compiled(.param .u64 .ptr .global .align 16 a)
.maxntid 128, 1, 1
{
  .loc 1 5 0
  call (retval0), vprintf, (param0, param1);
  { ret; }
}
.section .debug_abbrev { .b8 1 .b8 17 }
)";

struct FatBinary {
  unsigned magic;
  unsigned short version;
  unsigned short header_bytes;
  unsigned long long payload_bytes;
  char payload[8];
};

void Images(Facts& facts) {
  CUmodule module = nullptr;
  facts.Code("no image", cuModuleLoadData(&module, nullptr));
  facts.Code("no known image", cuModuleLoadData(&module, "hello"));
  facts.Code("empty image", cuModuleLoadData(&module, ""));
  facts.Code("broken text",
             cuModuleLoadData(&module, ".version 7.0\n.visible .entry broken(.param .u64"));
  facts.Code("no file", cuModuleLoad(&module, "/nowhere/to/be/found.ptx"));
  const FatBinary fatbin = {0xba55ed50, 1, 16, 0, {}};
  facts.Code("empty fat binary", cuModuleLoadData(&module, &fatbin));
}

// A fat binary with nothing that a GPU could run: the simulator finds every name in it.
void OpaqueImages(Facts& facts) {
  CUmodule module = nullptr;
  const FatBinary fatbin = {0xba55ed50, 1, 16, 8, {}};
  facts.Code("fat binary", cuModuleLoadData(&module, &fatbin));
  CUfunction function = nullptr;
  facts.Code("anything in it", cuModuleGetFunction(&function, module, "tail_2ms"));
  CUstream stream = NewStream();
  CUevent start = Mark(stream);
  MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  facts.Say("at least 2 ms", ElapsedUs(start, Mark(stream)) >= 2000 ? 1 : 0);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  MUST(cuLibraryLoadData(&library, "hello", nullptr, nullptr, 0, nullptr, nullptr, 0));
  facts.Code("kernel of no known image", cuLibraryGetKernel(&kernel, library, "any"));
  facts.Code("module of no known image", cuLibraryGetModule(&module, library));
  MUST(cuLibraryUnload(library));
}

void CompiledText(Facts& facts) {
  CUmodule module = nullptr;
  facts.Code("compiler's text", cuModuleLoadData(&module, kCompiled));
  unsigned count = 0;
  MUST(cuModuleGetFunctionCount(&count, module));
  facts.Say("functions in it", count);
  CUfunction function = nullptr;
  int value = 0;
  MUST(cuModuleGetFunction(&function, module, "compiled"));
  MUST(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  facts.Say("threads in it", value);
  size_t bytes = 0;
  facts.Code("variable in it", cuModuleGetGlobal_v2(nullptr, &bytes, module, "counter"));
}

}  // namespace

int main(int argc, char**) {
  const Gpu gpu;
  Facts facts;
  Contents(gpu, facts);
  Lifetimes(gpu, facts);
  Libraries(facts);
  Images(facts);
  if (argc > 1) {
    OpaqueImages(facts);
    CompiledText(facts);
  }
  return 0;
}
