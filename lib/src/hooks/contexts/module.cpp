// Code and its globals, and the sizes of heaps, buffers and stacks: what the driver takes for them
// it does not say beforehand. Loading is heavy, so it is measured at once, and undone when it
// brought the container above its limit. Looking something up in a module is light: where the
// process list knows us, it is read later; only without that list the difference in free memory
// must be taken at the call. In a library it may be the loading.
#include "hooks/contexts/context_cost.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/cores.h"
#include "real.h"

namespace gpufence {
namespace {

// The caller's handle is written only when the module stays, so that a refusal leaves it alone.
template <typename Handle, typename Load, typename Unload>
CUresult LoadedInto(Handle* out, Load load, Unload unload) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || out == nullptr) return load(out);
  FindPausesBeforeCode();
  Handle made = nullptr;
  const CUresult rc =
      CallThatGrows(device, 0, [&] { return load(&made); }, [&] { return unload(made); });
  if (rc == CUDA_SUCCESS) *out = made;
  return rc;
}

// Handles of an unloaded module may be dealt again, for functions with other needs.
template <typename Call>
CUresult Unloaded(Call call) {
  const Hook hook;
  FencedDevice* device = hook.current_device();
  const CUresult rc = CallThatGrows(device, 0, call);
  if (hook.fence() == nullptr || rc != CUDA_SUCCESS) return rc;
  ForgetLaunches();
  if (device != nullptr) ReadOverheadNow(device);
  return rc;
}

// The caller's handle is written only when it is not refused.
template <typename Handle, typename Call>
CUresult Placed(const Hook& hook, Handle* out, Call call) {
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || out == nullptr) return call(out);
  FindPausesBeforeCode();
  Handle found = {};
  const CUresult rc = CallThatPlaces(device, [&] { return call(&found); });
  if (rc == CUDA_SUCCESS) *out = found;
  return rc;
}

template <typename Call>
CUresult PlacedVariable(CUdeviceptr* dptr, size_t* bytes, Call call) {
  const Hook hook;
  if (hook.current_device() == nullptr || dptr == nullptr) {
    return hook.refused() ? kRefusalCode : call(dptr, bytes);
  }
  size_t found_bytes = 0;
  const bool asks_bytes = bytes != nullptr;
  const CUresult rc = Placed(
      hook, dptr, [&](CUdeviceptr* out) { return call(out, asks_bytes ? &found_bytes : nullptr); });
  if (rc == CUDA_SUCCESS && asks_bytes) *bytes = found_bytes;
  return rc;
}

// A kernel of a library that was asked for here before brings nothing more.
CUresult LookedUpKernel(CUfunction* function, CUkernel kernel) {
  const Hook hook;
  const auto call = [&](CUfunction* out) { return real::cuKernelGetFunction(out, kernel); };
  if (hook.fence() != nullptr && WasLookedUp(kernel)) return call(function);
  const CUresult rc = Placed(hook, function, call);
  if (rc == CUDA_SUCCESS && hook.fence() != nullptr) RememberLookUp(kernel);
  return rc;
}

// A function of a module brings code, some MiB at most, and is asked for too often to be measured
// each time; a variable nothing, since it came when the module was loaded. `is_new(rc)`: what the
// call gave was not asked for before, so that it may have brought something.
template <typename Call, typename IsNew>
CUresult LookedUp(Call call, IsNew is_new) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr) return call();
  if (!device->listed.load(std::memory_order_relaxed)) return CallThatGrows(device, 0, call);
  const CUresult rc = call();
  OverheadChanged(device);
  if (rc == CUDA_SUCCESS && is_new()) ReadIfGrownUnread(device);
  return rc;
}

bool Never() { return false; }

// Once for each in each context, as far as its place in the table is not somebody else's.
bool IsNew(const void* function) {
  if (WasLookedUp(function)) return false;
  RememberLookUp(function);
  return true;
}

// No thread of any GPU has more; the driver refuses it in its own words.
constexpr size_t kMostStackBytes = 512 << 10;

// Bytes that the context grows by, for the limits that are sizes. A value below the present one
// gives memory back, which is measured.
uint64_t ForeseenBytes(const Hook& hook, FencedDevice* device, CUlimit limit, size_t value) {
  size_t present = 0;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      if (value > kMostStackBytes) return 0;
      return StackGrowthBytes(hook.fence(), device, hook.context(), value);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      if (real::cuCtxGetLimit(&present, limit) != CUDA_SUCCESS) return 0;
      return value > present ? value - present : 0;
    default:
      return 0;
  }
}

CUresult SetLimit(CUlimit limit, size_t value) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  const auto call = [&] { return real::cuCtxSetLimit(limit, value); };
  if (device == nullptr) return call();
  const CUresult rc = CallThatGrows(device, ForeseenBytes(hook, device, limit, value), call);
  if (rc == CUDA_SUCCESS && limit == CU_LIMIT_STACK_SIZE) {
    SetLaunchedStack(hook.fence(), device, hook.context(), value);
    ForgetLaunches();
  }
  return rc;
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  return gpufence::LoadedInto(
      module, [&](CUmodule* made) { return real::cuModuleLoad(made, fname); },
      real::cuModuleUnload);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return gpufence::LoadedInto(
      module, [&](CUmodule* made) { return real::cuModuleLoadData(made, image); },
      real::cuModuleUnload);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  return gpufence::LoadedInto(
      module,
      [&](CUmodule* made) {
        return real::cuModuleLoadDataEx(made, image, numOptions, options, optionValues);
      },
      real::cuModuleUnload);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return gpufence::LoadedInto(
      module, [&](CUmodule* made) { return real::cuModuleLoadFatBinary(made, fatCubin); },
      real::cuModuleUnload);
}

CUresult cuModuleUnload(CUmodule hmod) {
  return gpufence::Unloaded([&] { return real::cuModuleUnload(hmod); });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return gpufence::LookedUp([&] { return real::cuModuleGetFunction(hfunc, hmod, name); },
                            [&] { return gpufence::IsNew(*hfunc); });
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule hmod,
                           const char* name) {
  return gpufence::LookedUp([&] { return real::cuModuleGetGlobal(dptr, bytes, hmod, name); },
                            gpufence::Never);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return gpufence::LookedUp([&] { return real::cuModuleGetGlobal_v2(dptr, bytes, hmod, name); },
                            gpufence::Never);
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  return gpufence::LoadedInto(
      library,
      [&](CUlibrary* made) {
        return real::cuLibraryLoadData(made, code, jitOptions, jitOptionsValues, numJitOptions,
                                       libraryOptions, libraryOptionValues, numLibraryOptions);
      },
      real::cuLibraryUnload);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  return gpufence::LoadedInto(
      library,
      [&](CUlibrary* made) {
        return real::cuLibraryLoadFromFile(made, fileName, jitOptions, jitOptionsValues,
                                           numJitOptions, libraryOptions, libraryOptionValues,
                                           numLibraryOptions);
      },
      real::cuLibraryUnload);
}

CUresult cuLibraryUnload(CUlibrary library) {
  return gpufence::Unloaded([&] { return real::cuLibraryUnload(library); });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return gpufence::LookedUp([&] { return real::cuLibraryGetKernel(pKernel, library, name); },
                            gpufence::Never);
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  const gpufence::Hook hook;
  return gpufence::Placed(hook, pMod,
                          [&](CUmodule* out) { return real::cuLibraryGetModule(out, library); });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return gpufence::PlacedVariable(dptr, bytes, [&](CUdeviceptr* address, size_t* size_bytes) {
    return real::cuLibraryGetGlobal(address, size_bytes, library, name);
  });
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  return gpufence::PlacedVariable(dptr, bytes, [&](CUdeviceptr* address, size_t* size_bytes) {
    return real::cuLibraryGetManaged(address, size_bytes, library, name);
  });
}

CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  return gpufence::LookedUp(
      [&] { return real::cuLibraryGetUnifiedFunction(fptr, library, symbol); },
      [&] { return gpufence::IsNew(*fptr); });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return gpufence::LookedUpKernel(pFunc, kernel);
}

CUresult cuFuncLoad(CUfunction function) {
  return gpufence::LookedUp([&] { return real::cuFuncLoad(function); }, [] { return true; });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return gpufence::SetLimit(limit, value); }

}  // extern "C"
