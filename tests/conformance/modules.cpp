// link: cuda
// flags: -Wl,-z,lazy
// Facts: modules and libraries: bad images, missing names, globals, and what they cost.

#include <cstring>
#include <string>

#include "gpu.h"

namespace conformance {
namespace {

void BadImages(Facts& facts) {
  CUmodule module = reinterpret_cast<CUmodule>(kPoison);
  const char garbage[256] = "this is no program for any GPU";
  facts.Code("load.null", cuModuleLoadData(&module, nullptr));
  facts.Code("load.garbage", cuModuleLoadData(&module, garbage));
  facts.Code("load.empty_text", cuModuleLoadData(&module, ""));
  facts.Code(
      "load.ptx_syntax_error",
      cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n.address_size 64\nnonsense;\n"));
  facts.Code("load.ptx_from_the_future",
             cuModuleLoadData(&module, ".version 99.0\n.target sm_50\n.address_size 64\n"));
  facts.Code("load.ptx_for_future_gpu",
             cuModuleLoadData(&module, ".version 7.0\n.target sm_999\n.address_size 64\n"));
  facts.Code("load.missing_file", cuModuleLoad(&module, "/nonexistent/module.ptx"));
  facts.Code("load.fat_garbage", cuModuleLoadFatBinary(&module, garbage));
  facts.Is("load.refused_leaves_output", module == reinterpret_cast<CUmodule>(kPoison));
  facts.Code("load.ptx_without_kernels",
             cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n.address_size 64\n"));
  facts.Code("unload.without_kernels", cuModuleUnload(module));
  facts.Code("unload.null", cuModuleUnload(nullptr));
}

void AskFunction(Facts& facts, const char* label, CUmodule module, const char* name) {
  CUfunction function = reinterpret_cast<CUfunction>(kPoison);
  const CUresult code = cuModuleGetFunction(&function, module, name);
  facts.Refused(std::string("function.") + label, code, Left(function));
}

void Functions(Facts& facts) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  facts.Code("load", cuModuleLoadData(&module, kKernels));
  AskFunction(facts, "missing", module, "no_such_kernel");
  AskFunction(facts, "empty_name", module, "");
  AskFunction(facts, "null_name", module, nullptr);
  AskFunction(facts, "of_null_module", nullptr, "gpufence_empty");
  facts.Code("function", cuModuleGetFunction(&function, module, "gpufence_spin_ns"));
  CUfunction again = nullptr;
  cuModuleGetFunction(&again, module, "gpufence_spin_ns");
  facts.Is("function.same_handle_again", function == again);
  const char* name = nullptr;
  facts.Code("function.name", cuFuncGetName(&name, function));
  facts.Text("function.name_is", name != nullptr ? name : "(null)");
  CUmodule owner = nullptr;
  facts.Code("function.module", cuFuncGetModule(&owner, function));
  facts.Is("function.module_is_its_own", owner == module);
  size_t offset = 77;
  size_t bytes = 77;
  facts.Code("function.parameter", cuFuncGetParamInfo(function, 0, &offset, &bytes));
  facts.Number("function.parameter_offset", static_cast<long long>(offset));
  facts.Number("function.parameter_bytes", static_cast<long long>(bytes));
  facts.Code("function.parameter_beyond", cuFuncGetParamInfo(function, 1, &offset, &bytes));
  unsigned count = 77;
  facts.Code("module.function_count", cuModuleGetFunctionCount(&count, module));
  facts.Number("module.function_count_is", count);
  facts.Code("unload", cuModuleUnload(module));
}

void AskGlobal(Facts& facts, const char* label, CUmodule module, const char* name) {
  CUdeviceptr address = kPoison;
  size_t bytes = 0;
  const CUresult code = cuModuleGetGlobal_v2(&address, &bytes, module, name);
  facts.Refused(std::string("global.") + label, code, Left(address));
}

void Globals(Facts& facts) {
  CUmodule module = nullptr;
  cuModuleLoadData(&module, kKernels);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  facts.Code("global", cuModuleGetGlobal_v2(&address, &bytes, module, "gpufence_global"));
  facts.Number("global.bytes", static_cast<long long>(bytes));
  AskGlobal(facts, "missing", module, "no_such_global");
  AskGlobal(facts, "kernel_is_none", module, "gpufence_empty");
  facts.Code("global.only_size", cuModuleGetGlobal_v2(nullptr, &bytes, module, "gpufence_global"));
  facts.Code("global.write", cuMemsetD8_v2(address, 1, 4096));
  facts.Code("global.free", cuMemFree_v2(address));
  CUdeviceptr base = 0;
  facts.Code("global.range", cuMemGetAddressRange_v2(&base, &bytes, address + 1));
  cuModuleUnload(module);
  facts.Code("global.range_after_unload", cuMemGetAddressRange_v2(&base, &bytes, address));
}

int AttributeOf(CUfunction function, CUfunction_attribute attribute) {
  int value = -77;
  cuFuncGetAttribute(&value, attribute, function);
  return value;
}

void FunctionAttributes(Facts& facts) {
  const Kernels kernels = LoadKernels();
  facts.Number("attribute.max_threads",
               AttributeOf(kernels.spin, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  facts.Number("attribute.shared_bytes",
               AttributeOf(kernels.spin, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  facts.Number("attribute.local_bytes",
               AttributeOf(kernels.spin, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  facts.Number("attribute.ptx_version", AttributeOf(kernels.spin, CU_FUNC_ATTRIBUTE_PTX_VERSION));
  facts.Measured("attribute.registers", AttributeOf(kernels.spin, CU_FUNC_ATTRIBUTE_NUM_REGS));
  int value = 0;
  facts.Code("attribute.bad",
             cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(999), kernels.spin));
  facts.Code("attribute.set_read_only",
             cuFuncSetAttribute(kernels.spin, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
  facts.Code(
      "attribute.set_dynamic_shared",
      cuFuncSetAttribute(kernels.spin, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024));
  facts.Code(
      "attribute.set_dynamic_shared_too_large",
      cuFuncSetAttribute(kernels.spin, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30));
  int blocks = -77;
  facts.Code("occupancy",
             cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.empty, 1024, 0));
  facts.Is("occupancy.positive", blocks > 0);
  facts.Code("occupancy.bad_block",
             cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.empty, 0, 0));
  cuModuleUnload(kernels.module);
}

void Libraries(Facts& facts) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUmodule module = nullptr;
  unsigned count = 77;
  const auto load = [&](const void* image) {
    return cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  facts.Code("library.garbage", load("this is no program for any GPU"));
  facts.Code("library.load", load(kKernels));
  facts.Code("library.kernel_count", cuLibraryGetKernelCount(&count, library));
  facts.Number("library.kernel_count_is", count);
  facts.Code("library.kernel", cuLibraryGetKernel(&kernel, library, "gpufence_empty"));
  facts.Code("library.kernel_missing", cuLibraryGetKernel(&kernel, library, "no_such_kernel"));
  facts.Code("library.module", cuLibraryGetModule(&module, library));
  CUdeviceptr address = 0;
  size_t bytes = 0;
  facts.Code("library.global", cuLibraryGetGlobal(&address, &bytes, library, "gpufence_global"));
  facts.Number("library.global_bytes", static_cast<long long>(bytes));
  facts.Code("library.unload", cuLibraryUnload(library));
}

// A module with 32 MiB of global memory: when are they taken, when given back?
void Costs(Facts& facts) {
  constexpr char kLarge[] =
      ".version 7.0\n.target sm_50\n.address_size 64\n"
      ".visible .global .align 4 .b8 large[33554432];\n"
      ".visible .entry touch() { ret; }\n";
  CUmodule module = nullptr;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const size_t before = FreeBytes();
  facts.Code("cost.load", cuModuleLoadData(&module, kLarge));
  facts.Is("cost.taken_by_load", DroppedSince(before) >= static_cast<long long>(32 * kMib));
  facts.Code("cost.global", cuModuleGetGlobal_v2(&address, &bytes, module, "large"));
  facts.Is("cost.taken_by_global", DroppedSince(before) >= static_cast<long long>(32 * kMib));
  facts.Measured("cost.taken_bytes", DroppedSince(before));
  facts.Code("cost.unload", cuModuleUnload(module));
  facts.Is("cost.given_back_by_unload", DroppedSince(before) < static_cast<long long>(32 * kMib));
  facts.Measured("cost.left_bytes", DroppedSince(before));
  CUmoduleLoadingMode mode{};
  facts.Code("loading_mode", cuModuleGetLoadingMode(&mode));
  facts.Number("loading_mode_is", mode);
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("modules");
  UsePrimary(FirstDevice(facts));
  BadImages(facts);
  Functions(facts);
  Globals(facts);
  FunctionAttributes(facts);
  Libraries(facts);
  Costs(facts);
  return 0;
}
