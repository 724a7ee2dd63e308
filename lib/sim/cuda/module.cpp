// Modules and functions: tables, lifetimes, device bytes. Must not know streams or time.
#include "cuda/module.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/memory.h"
#include "machine/machine.h"
#include "machine/version.h"

namespace sim {

namespace module {

namespace {

constinit Table<Module, Kind::kModule> modules;
constinit Table<Function, Kind::kFunction> functions;

// Drivers from CUDA 12.2 on load lazily by default, as CUDA_MODULE_LOADING=LAZY did before.
constexpr int kLazyByDefaultSince = 12020;

// Code shares the device's granules with nobody: a module takes whole ones.
uint64_t CodeBytes(const Module& module) {
  const uint64_t granules =
      (module.image->code_bytes + machine::kGranuleBytes - 1) / machine::kGranuleBytes;
  return granules * machine::kGranuleBytes;
}

bool Charge(Module* module) {
  if (module->is_charged) return true;
  const context::Context* context = context::Find(AsHandle<CUcontext>(module->context));
  if (context == nullptr) return false;
  module->charged_bytes = CodeBytes(*module);
  if (!memory::ChargeHidden(context->device, module->charged_bytes)) return false;
  module->is_charged = true;
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
  if (!IsLazy() && !Charge(module)) {
    Unload(module);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Globals are there from the start, however late the code comes; a library's wait for a context.
  // Small ones lie beside the code and take nothing of their own.
  for (const image::Variable& variable : image->variables) {
    if (variable.bytes <= machine::kGranuleBytes / 2) continue;
    const CUresult result = GetVariable(module, variable.name, nullptr, nullptr);
    if (result == CUDA_SUCCESS) continue;
    Unload(module);
    return result;
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
  return *found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GetVariable(Module* module, const char* name, CUdeviceptr* address, size_t* bytes) {
  const image::Variable* variable = image::FindVariable(module->image, name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Placed* placed = nullptr;
  for (const Placed& candidate : module->variables) {
    if (candidate.variable == variable) placed = &candidate;
  }
  if (placed == nullptr) {
    context::Context* context = context::Find(AsHandle<CUcontext>(module->context));
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    Placed fresh = {variable, 0};
    const CUresult result = memory::AllocateLinear(context, variable->bytes, &fresh.address);
    if (result != CUDA_SUCCESS) return result;
    if (!module->variables.Push(fresh)) return CUDA_ERROR_OUT_OF_MEMORY;
    placed = &module->variables.back();
  }
  if (address != nullptr) *address = placed->address;
  if (bytes != nullptr) *bytes = variable->bytes;
  return CUDA_SUCCESS;
}

CUresult LoadFunction(Function* function) {
  Module* module = modules.Find(function->module);
  if (module == nullptr || !Charge(module)) return CUDA_ERROR_OUT_OF_MEMORY;
  function->is_loaded = true;
  return CUDA_SUCCESS;
}

void Unload(Module* module) {
  functions.ForEach([&](uint64_t handle, Function* function) {
    if (function->module != module->handle) return;
    function->parameters.Free();
    functions.Destroy(handle);
  });
  for (const Placed& placed : module->variables) memory::FreeLinear(placed.address);
  module->variables.Free();
  const context::Context* context = context::Find(AsHandle<CUcontext>(module->context));
  if (module->is_charged && context != nullptr) {
    memory::ReleaseHidden(context->device, module->charged_bytes);
  }
  image::Release(module->image);
  modules.Destroy(module->handle);
}

CUresult ModuleOfLibrary(const Library& library, context::Context* context, Module** found) {
  *found = nullptr;
  modules.ForEach([&](uint64_t, Module* module) {
    if (module->library == library.handle && module->context == context->handle) *found = module;
  });
  if (*found != nullptr) return CUDA_SUCCESS;
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
}

}  // namespace sim
