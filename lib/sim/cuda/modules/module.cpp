// Modules and functions: tables, lifetimes, device bytes. Must not know streams or time.
#include "cuda/modules/module.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/memory/memory.h"
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

}  // namespace sim
