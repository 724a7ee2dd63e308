// Modules and functions: tables, lifetimes, device bytes, and the exports about modules. Must not
// know time, only that loading and unloading wait for the GPU.
#include "cuda/modules/module.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/memory/memory.h"
#include "machine/calls.h"
#include "machine/machine.h"
#include "machine/version.h"

namespace sim {

namespace module {

namespace {

constinit Table<Module, Kind::kModule> modules;
constinit Table<Function, Kind::kFunction> functions;

// Drivers from CUDA 12.2 on load lazily by default, as CUDA_MODULE_LOADING=LAZY did before.
constexpr int kLazyByDefaultSince = 12020;

// What the modules of a context hold lies together: code and variables. What fits beside the
// context itself costs nothing (measured: small modules do not change the free memory), the rest
// comes in granules.
struct Area {
  uint64_t context;
  uint64_t used_bytes;
  uint64_t charged_bytes;
};
constinit Vec<Area> areas{};

Area* AreaOf(uint64_t context) {
  for (Area& area : areas) {
    if (area.context == context) return &area;
  }
  return areas.Push({context, 0, 0}) ? &areas.back() : nullptr;
}

// Adds to or takes from a context's area. False when the device has no room; nothing changed then.
bool Resize(uint64_t context_handle, int64_t delta_bytes) {
  const context::Context* context = context::Find(AsHandle<CUcontext>(context_handle));
  Area* area = AreaOf(context_handle);
  if (context == nullptr || area == nullptr) return false;
  const uint64_t used = area->used_bytes + static_cast<uint64_t>(delta_bytes);
  const uint64_t wanted = used / machine::kGranuleBytes * machine::kGranuleBytes;
  if (wanted > area->charged_bytes &&
      !memory::ChargeHidden(context->device, wanted - area->charged_bytes)) {
    return false;
  }
  if (wanted < area->charged_bytes) {
    memory::ReleaseHidden(context->device, area->charged_bytes - wanted);
  }
  area->used_bytes = used;
  area->charged_bytes = wanted;
  return true;
}

bool Hold(Module* module, uint64_t bytes) {
  if (!Resize(module->context, static_cast<int64_t>(bytes))) return false;
  module->held_bytes += bytes;
  return true;
}

bool PlaceCode(Module* module) {
  if (!module->has_code) module->has_code = Hold(module, module->image->code_bytes);
  return module->has_code;
}

// False when there is no room; what was placed then goes with the module.
bool PlaceVariables(Module* module, const context::Context& context) {
  for (const image::Variable& variable : module->image->variables) {
    Placed placed = {&variable, 0};
    if (!Hold(module, variable.bytes) ||
        memory::AllocateGlobal(context, variable.bytes, &placed.address) != CUDA_SUCCESS) {
      return false;
    }
    if (!module->variables.Push(placed)) {
      memory::FreeGlobal(placed.address);
      return false;
    }
  }
  return true;
}

Function* NewFunction(const Module& module, const image::Entry* entry) {
  uint64_t handle = 0;
  Function* function = functions.Create(&handle);
  if (function == nullptr) return nullptr;
  function->handle = handle;
  function->module = module.handle;
  function->context = module.context;
  function->entry = entry;
  return function;
}

}  // namespace

bool IsLazy() {
  const char* wanted = getenv("CUDA_MODULE_LOADING");
  if (wanted != nullptr && strcmp(wanted, "EAGER") == 0) return false;
  if (wanted != nullptr && strcmp(wanted, "LAZY") == 0) return true;
  return ConfiguredDriver().cuda_version >= kLazyByDefaultSince;
}

Module* Find(CUmodule handle) { return modules.Find(handle); }
Module* FindByHandle(uint64_t handle) { return modules.Find(handle); }

CUresult Create(image::Image* image, context::Context* context, uint64_t library,
                Module** created) {
  uint64_t handle = 0;
  Module* module = modules.Create(&handle);
  if (module == nullptr) {
    image::Release(image);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  module->handle = handle;
  module->context = context->handle;
  module->library = library;
  module->image = image;
  if (!PlaceVariables(module, *context) || (!IsLazy() && !PlaceCode(module))) {
    Unload(module);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *created = module;
  return CUDA_SUCCESS;
}

CUresult GetFunction(Module* module, const char* name, Function** found) {
  const image::Entry* entry = image::FindEntry(module->image, name);
  if (entry == nullptr) return CUDA_ERROR_NOT_FOUND;
  *found = nullptr;
  functions.ForEach([&](uint64_t, Function* function) {
    if (function->module == module->handle && function->entry == entry) *found = function;
  });
  if (*found == nullptr) *found = NewFunction(*module, entry);
  return *found != nullptr ? LoadFunction(*found) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GetVariable(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes) {
  for (const Placed& placed : module.variables) {
    if (strcmp(placed.variable->name, name) != 0) continue;
    if (address != nullptr) *address = placed.address;
    if (bytes != nullptr) *bytes = placed.variable->bytes;
    return CUDA_SUCCESS;
  }
  for (const image::Entry* entry : module.image->entries) {
    if (strcmp(entry->name, name) == 0) return CUDA_ERROR_INVALID_VALUE;  // found, but a kernel
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult LoadFunction(Function* function) {
  Module* module = modules.Find(function->module);
  if (module == nullptr || !PlaceCode(module)) return CUDA_ERROR_OUT_OF_MEMORY;
  function->is_loaded = true;
  return CUDA_SUCCESS;
}

void Unload(Module* module) {
  functions.ForEach([&](uint64_t handle, Function* function) {
    if (function->module != module->handle) return;
    function->parameters.Free();
    functions.Destroy(handle);
  });
  for (const Placed& placed : module->variables) memory::FreeGlobal(placed.address);
  module->variables.Free();
  Resize(module->context, -static_cast<int64_t>(module->held_bytes));
  image::Release(module->image);
  modules.Destroy(module->handle);
}

CUresult ModuleOfLibrary(const Library& library, context::Context* context, Module** found) {
  *found = nullptr;
  modules.ForEach([&](uint64_t, Module* module) {
    if (module->library == library.handle && module->context == context->handle) *found = module;
  });
  if (*found != nullptr) return CUDA_SUCCESS;
  if (library.image == nullptr) return library.refusal;
  image::Retain(library.image);
  return Create(library.image, context, library.handle, found);
}

CUresult FunctionOfKernel(const Kernel& kernel, context::Context* context, Function** found) {
  Library* library = FindLibrary(AsHandle<CUlibrary>(kernel.library));
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  CUresult result = ModuleOfLibrary(*library, context, &module);
  if (result == CUDA_SUCCESS) result = GetFunction(module, kernel.entry->name, found);
  if (result == CUDA_SUCCESS) (*found)->kernel = kernel.handle;
  return result;
}

CUresult ResolveFunction(CUfunction handle, Function** found) {
  *found = functions.Find(handle);
  if (*found != nullptr) return CUDA_SUCCESS;
  const Kernel* kernel = FindKernel(AsHandle<CUkernel>(HandleValue(handle)));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  return result != CUDA_SUCCESS ? result : FunctionOfKernel(*kernel, context, found);
}

void ForgetViewsOf(uint64_t library) {
  modules.ForEach([&](uint64_t, Module* module) {
    if (module->library == library) Unload(module);
  });
}

}  // namespace module

void EndModulesOf(context::Context* context) {
  module::modules.ForEach([&](uint64_t, module::Module* module) {
    if (module->context == context->handle) module::Unload(module);
  });
  for (size_t i = 0; i < module::areas.size(); ++i) {
    if (module::areas[i].context == context->handle) module::areas.Erase(i--);
  }
}

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
