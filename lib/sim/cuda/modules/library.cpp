// Libraries: modules without a context, and their kernels. Must not know streams or time.
#include "cuda/modules/module.h"
#include "machine/calls.h"

namespace sim {

namespace module {

namespace {

constinit Table<Library, Kind::kLibrary> libraries;
constinit Table<Kernel, Kind::kKernel> kernels;

// Whether a library may be made of an image that was refused so: with lazy loading, nobody has
// looked into it yet.
bool IsToldLater(CUresult refusal) {
  return IsLazy() &&
         (refusal == CUDA_ERROR_INVALID_IMAGE || refusal == CUDA_ERROR_INVALID_PTX ||
          refusal == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || refusal == CUDA_ERROR_NO_BINARY_FOR_GPU);
}

// Makes a library of an image, which it takes over, or of what became of loading it.
CUresult CreateLibrary(CUresult loaded, image::Image* image, CUlibrary* out) {
  if (loaded != CUDA_SUCCESS && !IsToldLater(loaded)) return loaded;
  DriverLock lock;
  uint64_t handle = 0;
  Library* library = libraries.Create(&handle);
  if (library == nullptr) {
    if (image != nullptr) image::Release(image);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  library->handle = handle;
  library->image = image;
  library->refusal = loaded;
  *out = AsHandle<CUlibrary>(handle);
  return CUDA_SUCCESS;
}

// The library behind a handle, once something in it is wanted.
CUresult FindLoaded(CUlibrary handle, const Library** found) {
  *found = libraries.Find(handle);
  return *found != nullptr ? (*found)->refusal : CUDA_ERROR_INVALID_HANDLE;
}

CUresult KernelOf(const Library& library, const image::Entry* entry, CUkernel* out) {
  uint64_t handle = 0;
  kernels.ForEach([&](uint64_t candidate, Kernel* kernel) {
    if (kernel->library == library.handle && kernel->entry == entry) handle = candidate;
  });
  if (handle == 0) {
    Kernel* kernel = kernels.Create(&handle);
    if (kernel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *kernel = {handle, library.handle, entry};
  }
  *out = AsHandle<CUkernel>(handle);
  return CUDA_SUCCESS;
}

// A variable as the current context sees it.
CUresult VariableOf(CUlibrary handle, const char* name, bool managed, CUdeviceptr* address,
                    size_t* bytes) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const Library* library = nullptr;
  CUresult result = FindLoaded(handle, &library);
  if (result != CUDA_SUCCESS) return result;
  const image::Variable* variable = image::FindVariable(library->image, name);
  if (variable == nullptr || variable->is_managed != managed) return CUDA_ERROR_NOT_FOUND;
  context::Context* context = nullptr;
  result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  Module* module = nullptr;
  result = ModuleOfLibrary(*library, context, &module);
  return result != CUDA_SUCCESS ? result : GetVariable(*module, name, address, bytes);
}

}  // namespace

Library* FindLibrary(CUlibrary handle) { return libraries.Find(handle); }
Kernel* FindKernel(CUkernel handle) { return kernels.Find(handle); }

}  // namespace module

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuLibraryLoadData(CUlibrary* library, const void* code,
                                      CUjit_option* jitOptions, void** jitOptionsValues,
                                      unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                      void** libraryOptionValues, unsigned int numLibraryOptions) {
  SIM_CALL(cuLibraryLoadData, library, code, jitOptions, jitOptionsValues, numJitOptions,
           libraryOptions, libraryOptionValues, numLibraryOptions);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  image::Image* image = nullptr;
  const CUresult loaded = image::Load(code, &image);
  return module::CreateLibrary(loaded, image, library);
}

extern "C" CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                          CUjit_option* jitOptions, void** jitOptionsValues,
                                          unsigned int numJitOptions,
                                          CUlibraryOption* libraryOptions,
                                          void** libraryOptionValues,
                                          unsigned int numLibraryOptions) {
  SIM_CALL(cuLibraryLoadFromFile, library, fileName, jitOptions, jitOptionsValues, numJitOptions,
           libraryOptions, libraryOptionValues, numLibraryOptions);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  image::Image* image = nullptr;
  const CUresult loaded = image::LoadFile(fileName, &image);
  return module::CreateLibrary(loaded, image, library);
}

extern "C" CUresult cuLibraryUnload(CUlibrary library) {
  SIM_CALL(cuLibraryUnload, library);
  DriverLock lock;
  module::Library* found = module::libraries.Find(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  module::ForgetViewsOf(found->handle);
  module::kernels.ForEach([&](uint64_t handle, module::Kernel* kernel) {
    if (kernel->library == found->handle) module::kernels.Destroy(handle);
  });
  if (found->image != nullptr) image::Release(found->image);
  module::libraries.Destroy(library);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  SIM_CALL(cuLibraryGetKernel, pKernel, library, name);
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const module::Library* found = nullptr;
  const CUresult result = module::FindLoaded(library, &found);
  if (result != CUDA_SUCCESS) return result;
  const image::Entry* entry = image::FindEntry(found->image, name);
  return entry == nullptr ? CUDA_ERROR_NOT_FOUND : module::KernelOf(*found, entry, pKernel);
}

extern "C" CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  SIM_CALL(cuLibraryGetKernelCount, count, lib);
  DriverLock lock;
  const module::Library* found = module::libraries.Find(lib);
  if (count == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (found->image == nullptr) return found->refusal;
  *count = static_cast<unsigned>(found->image->entries.size());
  return CUDA_SUCCESS;
}

extern "C" CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels,
                                              CUlibrary lib) {
  SIM_CALL(cuLibraryEnumerateKernels, kernels, numKernels, lib);
  DriverLock lock;
  const module::Library* found = module::libraries.Find(lib);
  if (kernels == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (found->image == nullptr) return found->refusal;
  for (unsigned i = 0; i < numKernels && i < found->image->entries.size(); ++i) {
    const CUresult result = module::KernelOf(*found, found->image->entries[i], &kernels[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  SIM_CALL(cuLibraryGetModule, pMod, library);
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const module::Library* found = module::libraries.Find(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context::Context* context = nullptr;
  CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  module::Module* module = nullptr;
  result = module::ModuleOfLibrary(*found, context, &module);
  if (result == CUDA_SUCCESS) *pMod = AsHandle<CUmodule>(module->handle);
  return result;
}

extern "C" CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                       const char* name) {
  SIM_CALL(cuLibraryGetGlobal, dptr, bytes, library, name);
  return module::VariableOf(library, name, false, dptr, bytes);
}

extern "C" CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                        const char* name) {
  SIM_CALL(cuLibraryGetManaged, dptr, bytes, library, name);
  return module::VariableOf(library, name, true, dptr, bytes);
}

// Unified functions are an extension for a few embedded systems.
extern "C" CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library,
                                                const char* symbol) {
  SIM_CALL(cuLibraryGetUnifiedFunction, fptr, library, symbol);
  return CUDA_ERROR_NOT_FOUND;
}

extern "C" CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  SIM_CALL(cuKernelGetFunction, pFunc, kernel);
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  const module::Kernel* found = module::FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context::Context* context = nullptr;
  CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  module::Function* function = nullptr;
  result = module::FunctionOfKernel(*found, context, &function);
  if (result == CUDA_SUCCESS) *pFunc = AsHandle<CUfunction>(function->handle);
  return result;
}

extern "C" CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  SIM_CALL(cuKernelGetLibrary, pLib, kernel);
  DriverLock lock;
  const module::Kernel* found = module::FindKernel(kernel);
  if (pLib == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pLib = AsHandle<CUlibrary>(found->library);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  SIM_CALL(cuKernelGetName, name, hfunc);
  DriverLock lock;
  const module::Kernel* found = module::FindKernel(hfunc);
  if (name == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = found->entry->name;
  return CUDA_SUCCESS;
}
