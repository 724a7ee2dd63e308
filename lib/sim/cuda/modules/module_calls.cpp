// The exports about modules. Must not know time, only that loading and unloading wait for the GPU.
#include "cuda/memory/memory.h"
#include "cuda/modules/module.h"
#include "machine/calls.h"

namespace sim {

namespace {

using module::Function;
using module::Module;

void AwaitContext() {
  if (stream::WaitForContext != nullptr) stream::WaitForContext(0);
}

// Takes the image over. Code and variables are put where nothing runs.
CUresult Adopt(image::Image* image, CUmodule* out) {
  AwaitContext();
  DriverLock lock;
  context::Context* context = nullptr;
  CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) {
    image::Release(image);
    return result;
  }
  Module* module = nullptr;
  result = module::Create(image, context, 0, &module);
  if (result == CUDA_SUCCESS) *out = AsHandle<CUmodule>(module->handle);
  return result;
}

CUresult LoadModule(CUmodule* out, const void* data) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  image::Image* image = nullptr;
  const CUresult result = image::Load(data, &image);
  return result != CUDA_SUCCESS ? result : Adopt(image, out);
}

template <typename Address, typename Size>
CUresult GetGlobal(Address* address, Size* bytes, CUmodule handle, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Module* module = module::Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr found = 0;
  size_t found_bytes = 0;
  const CUresult result = module::GetVariable(*module, name, &found, &found_bytes);
  if (result != CUDA_SUCCESS) {
    if (address != nullptr) *address = 0;
    return result;
  }
  if (address != nullptr) *address = static_cast<Address>(found);
  if (bytes != nullptr) *bytes = static_cast<Size>(found_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  SIM_CALL(cuModuleLoad, module, fname);
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  image::Image* image = nullptr;
  const CUresult result = image::LoadFile(fname, &image);
  return result != CUDA_SUCCESS ? result : Adopt(image, module);
}

extern "C" CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SIM_CALL(cuModuleLoadData, module, image);
  return LoadModule(module, image);
}

extern "C" CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                       CUjit_option* options, void** optionValues) {
  SIM_CALL(cuModuleLoadDataEx, module, image, numOptions, options, optionValues);
  return LoadModule(module, image);
}

extern "C" CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  SIM_CALL(cuModuleLoadFatBinary, module, fatCubin);
  return LoadModule(module, fatCubin);
}

extern "C" CUresult cuModuleUnload(CUmodule hmod) {
  SIM_CALL(cuModuleUnload, hmod);
  AwaitContext();
  DriverLock lock;
  Module* module = module::Find(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  module::Unload(module);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIM_CALL(cuModuleGetLoadingMode, mode);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = module::IsLazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  SIM_CALL(cuModuleGetFunction, hfunc, hmod, name);
  if (hfunc == nullptr || name == nullptr || name[0] == '\0') return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Module* module = module::Find(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Function* function = nullptr;
  const CUresult result = module::GetFunction(module, name, &function);
  *hfunc = result == CUDA_SUCCESS ? AsHandle<CUfunction>(function->handle) : nullptr;
  return result;
}

extern "C" CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  SIM_CALL(cuModuleGetFunctionCount, count, mod);
  DriverLock lock;
  const Module* module = module::Find(mod);
  if (count == nullptr || module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->image->entries.size());
  return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                               CUmodule mod) {
  SIM_CALL(cuModuleEnumerateFunctions, functions, numFunctions, mod);
  DriverLock lock;
  Module* module = module::Find(mod);
  if (functions == nullptr || module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < numFunctions && i < module->image->entries.size(); ++i) {
    Function* function = nullptr;
    const CUresult result = module::GetFunction(module, module->image->entries[i]->name, &function);
    if (result != CUDA_SUCCESS) return result;
    functions[i] = AsHandle<CUfunction>(function->handle);
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule hmod,
                                      const char* name) {
  SIM_CALL(cuModuleGetGlobal, dptr, bytes, hmod, name);
  return GetGlobal(dptr, bytes, hmod, name);
}

extern "C" CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                         const char* name) {
  SIM_CALL(cuModuleGetGlobal_v2, dptr, bytes, hmod, name);
  return GetGlobal(dptr, bytes, hmod, name);
}

// Texture and surface references were removed from the language; no image here has any.
extern "C" CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  SIM_CALL(cuModuleGetTexRef, pTexRef, hmod, name);
  return CUDA_ERROR_NOT_FOUND;
}

extern "C" CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  SIM_CALL(cuModuleGetSurfRef, pSurfRef, hmod, name);
  return CUDA_ERROR_NOT_FOUND;
}
