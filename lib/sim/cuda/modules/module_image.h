// Program images as far as the simulator needs them: which kernels and variables are inside, with
// what sizes. Kernels are never run, so code is not kept.
//
// PTX text is read in full; a cubin (ELF) gives its kernels by its section names; a fat binary is
// opaque, since its parts may be compressed: it has every kernel that it is asked for, and no
// variable. Must not know contexts, handles or memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "driver_abi.h"
#include "machine/vec.h"

namespace sim::image {

struct Parameter {
  uint32_t offset;
  uint32_t bytes;
};

struct Entry {
  char* name;
  bool has_signature;  // false: the image did not say what the parameters are
  uint32_t parameter_bytes;
  uint32_t shared_bytes;  // static
  uint32_t local_bytes;   // of each thread
  uint32_t max_threads;   // per block; 0 = as many as the device allows
  Vec<Parameter> parameters;
};

struct Variable {
  char* name;
  uint64_t bytes;
  bool is_managed;
};

struct Image {
  uint32_t references;
  bool is_opaque;
  int target;  // compute capability that it was written for, times ten; 0 = it does not say
  uint64_t code_bytes;
  Vec<Entry*> entries;
  Vec<Variable> variables;
};

// The compute capability of the simulated GPU, times ten.
inline constexpr int kGpuTarget = 90;

// Reads an image of any kind. 1: null; 200: of no known kind; 209: a fat binary without content;
// 218: PTX that does not parse or is for a newer GPU; 222: PTX newer than the driver; 2: out of
// memory. On success *loaded has one reference.
CUresult Load(const void* data, Image** loaded);

// The same from a file; 301 when it cannot be read.
CUresult LoadFile(const char* path, Image** loaded);

void Retain(Image* image);
void Release(Image* image);

// The kernel of that name, or null.
Entry* FindEntry(Image* image, const char* name);
const Variable* FindVariable(const Image* image, const char* name);

// Building blocks of the readers. Null or false when memory is exhausted.
Entry* AddEntry(Image* image, const char* name, size_t name_length);
bool AddVariable(Image* image, const char* name, size_t name_length, uint64_t bytes,
                 bool is_managed);
bool AddParameter(Entry* entry, uint32_t bytes, uint32_t alignment);

// PTX, with the codes of Load.
CUresult ReadPtx(const char* text, Image* image);

}  // namespace sim::image
