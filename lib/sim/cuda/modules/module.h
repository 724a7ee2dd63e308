// Modules, libraries, and the functions in them.
//
// Owns the tables of modules, functions, libraries and kernels, and what they cost on the device.
// Must not know streams or time.
#pragma once

#include <stdint.h>

#include "cuda/devices/context.h"
#include "cuda/modules/module_image.h"
#include "driver_abi.h"
#include "machine/objects.h"
#include "machine/vec.h"

namespace sim::module {

inline constexpr int kFunctionAttributes = 16;

struct Placed {  // a variable of a module, once it has an address
  const image::Variable* variable;
  CUdeviceptr address;
};

struct Module {
  uint64_t handle;
  uint64_t context;
  uint64_t library;  // that it is a view of, or 0
  image::Image* image;
  bool has_code;          // its code lies on the device
  uint64_t held_bytes;    // of the device: by variables and code
  Vec<Placed> variables;  // all of the image's
};

// A kernel in a module.
struct Function {
  uint64_t handle;
  uint64_t module;
  uint64_t context;
  uint64_t kernel;  // that it is a view of, or 0
  const image::Entry* entry;
  bool is_loaded;
  int attributes[kFunctionAttributes];  // as set by the program
  // What cuFuncSetBlockShape, cuFuncSetSharedSize and cuParamSet* prepare for cuLaunch*.
  int block[3];
  unsigned shared_bytes;
  unsigned parameter_bytes;
  Vec<uint8_t> parameters;
};

struct Library {
  uint64_t handle;
  image::Image* image;  // null when it was no good, which is told when something of it is wanted
  CUresult refusal;     // why
};

// A kernel of a library, in no context yet.
struct Kernel {
  uint64_t handle;
  uint64_t library;
  const image::Entry* entry;
};

// Whether code comes to the device when a function is first asked for (CUDA_MODULE_LOADING, else
// the driver's habit).
bool IsLazy();

Module* Find(CUmodule handle);
Module* FindByHandle(uint64_t handle);
Library* FindLibrary(CUlibrary handle);
Kernel* FindKernel(CUkernel handle);

// The function behind a handle that launches accept: a CUfunction, or a CUkernel, which stands for
// its function in the current context. 400 when it is neither.
CUresult ResolveFunction(CUfunction handle, Function** found);

// A kernel's function in a context, made at the first request.
CUresult FunctionOfKernel(const Kernel& kernel, context::Context* context, Function** found);

// The view of a library in a context, made at the first request.
CUresult ModuleOfLibrary(const Library& library, context::Context* context, Module** found);

// A module over an image, which it takes over. Variables lie on the device from now on, code too
// unless loading is lazy: then from when a function is first asked for.
CUresult Create(image::Image* image, context::Context* context, uint64_t library, Module** created);
CUresult GetFunction(Module* module, const char* name, Function** found);
CUresult GetVariable(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes);
void Unload(Module* module);

// Brings a function's code to the device. 2 when there is no room.
CUresult LoadFunction(Function* function);

// Kernels of a library (library.cpp) end with it.
void ForgetViewsOf(uint64_t library);

}  // namespace sim::module
