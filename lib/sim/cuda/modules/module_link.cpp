// The linker of the driver: collects inputs and hands out an image in which all their kernels are.
//
// The image is PTX text again, which the loading functions accept like a cubin; binary inputs are
// accepted but contribute no names. Must not know contexts' contents, streams or time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/modules/module.h"
#include "machine/calls.h"

namespace sim {

namespace {

struct Link {
  uint64_t handle;
  Vec<char> text;
};
constinit Table<Link, Kind::kLink> links;

CUresult CreateLink(CUlinkState* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  context::Context* context = nullptr;
  const CUresult result = context::Current(&context);
  if (result != CUDA_SUCCESS) return result;
  uint64_t handle = 0;
  Link* link = links.Create(&handle);
  if (link == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  link->handle = handle;
  *out = AsHandle<CUlinkState>(handle);
  return CUDA_SUCCESS;
}

bool Append(Link* link, const char* text, size_t bytes) {
  for (size_t i = 0; i < bytes && text[i] != '\0'; ++i) {
    if (!link->text.Push(text[i])) return false;
  }
  return link->text.Push('\n');
}

CUresult AddData(CUlinkState state, CUjitInputType type, const void* data, size_t bytes) {
  if (data == nullptr || bytes == 0 || type >= CU_JIT_NUM_INPUT_TYPES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DriverLock lock;
  Link* link = links.Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (type != CU_JIT_INPUT_PTX) return CUDA_SUCCESS;
  return Append(link, static_cast<const char*>(data), bytes) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult AddFile(CUlinkState state, CUjitInputType type, const char* path) {
  FILE* file = path != nullptr ? fopen(path, "rbe") : nullptr;
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  Vec<char> data{};
  char part[4096];
  for (size_t got = 0; (got = fread(part, 1, sizeof(part), file)) != 0;) {
    for (size_t i = 0; i < got; ++i) data.Push(part[i]);
  }
  fclose(file);
  const CUresult result = AddData(state, type, data.data(), data.size());
  data.Free();
  return result;
}

}  // namespace

}  // namespace sim

// The exports are global, everything that they use is in sim.
using namespace sim;

extern "C" CUresult cuLinkCreate(unsigned int numOptions, CUjit_option* options,
                                 void** optionValues, CUlinkState* stateOut) {
  SIM_CALL(cuLinkCreate, numOptions, options, optionValues, stateOut);
  return CreateLink(stateOut);
}

extern "C" CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options,
                                    void** optionValues, CUlinkState* stateOut) {
  SIM_CALL(cuLinkCreate_v2, numOptions, options, optionValues, stateOut);
  return CreateLink(stateOut);
}

extern "C" CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                  const char* name, unsigned int numOptions, CUjit_option* options,
                                  void** optionValues) {
  SIM_CALL(cuLinkAddData, state, type, data, size, name, numOptions, options, optionValues);
  return AddData(state, type, data, size);
}

extern "C" CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data,
                                     size_t size, const char* name, unsigned int numOptions,
                                     CUjit_option* options, void** optionValues) {
  SIM_CALL(cuLinkAddData_v2, state, type, data, size, name, numOptions, options, optionValues);
  return AddData(state, type, data, size);
}

extern "C" CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                                  unsigned int numOptions, CUjit_option* options,
                                  void** optionValues) {
  SIM_CALL(cuLinkAddFile, state, type, path, numOptions, options, optionValues);
  return AddFile(state, type, path);
}

extern "C" CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                                     unsigned int numOptions, CUjit_option* options,
                                     void** optionValues) {
  SIM_CALL(cuLinkAddFile_v2, state, type, path, numOptions, options, optionValues);
  return AddFile(state, type, path);
}

// The image lives until the state is destroyed.
extern "C" CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  SIM_CALL(cuLinkComplete, state, cubinOut, sizeOut);
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock;
  Link* link = links.Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (link->text.empty() && !Append(link, ".version 7.0", SIZE_MAX)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!link->text.Push('\0')) return CUDA_ERROR_OUT_OF_MEMORY;
  *cubinOut = link->text.data();
  if (sizeOut != nullptr) *sizeOut = link->text.size();
  return CUDA_SUCCESS;
}

extern "C" CUresult cuLinkDestroy(CUlinkState state) {
  SIM_CALL(cuLinkDestroy, state);
  DriverLock lock;
  Link* link = links.Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  link->text.Free();
  links.Destroy(state);
  return CUDA_SUCCESS;
}
