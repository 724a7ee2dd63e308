// Telling images apart and reading the binary ones. Must not know contexts, handles or memory.
#include "cuda/modules/module_image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace sim::image {

namespace {

constexpr uint32_t kFatbinMagic = 0xba55ed50;         // the blob itself
constexpr uint32_t kFatbinWrapperMagic = 0x466243b1;  // what nvcc embeds: a pointer to the blob
constexpr char kTextPrefix[] = ".text.";

struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t payload_bytes;
};

struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;
  const void* blob;
  const void* file_name;
};

uint32_t MagicOf(const void* data) {
  uint32_t magic = 0;
  memcpy(&magic, data, sizeof(magic));
  return magic;
}

char* CopyName(const char* name, size_t length) {
  char* copy = static_cast<char*>(malloc(length + 1));
  if (copy == nullptr) return nullptr;
  memcpy(copy, name, length);
  copy[length] = '\0';
  return copy;
}

CUresult ReadFatbin(const void* blob, Image* image) {
  FatbinHeader header;
  memcpy(&header, blob, sizeof(header));
  if (header.magic != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
  if (header.payload_bytes == 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  image->is_opaque = true;
  image->code_bytes = header.payload_bytes;
  return CUDA_SUCCESS;
}

// A cubin: each kernel has a section .text.NAME. The caller vouches for the image's bytes, as with
// the real function, which is not told their number either.
CUresult ReadElf(const void* data, Image* image) {
  const char* bytes = static_cast<const char*>(data);
  Elf64_Ehdr header;
  memcpy(&header, bytes, sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes + header.e_shoff);
  const char* names = bytes + sections[header.e_shstrndx].sh_offset;
  image->code_bytes = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    const char* name = names + sections[i].sh_name;
    if (strncmp(name, kTextPrefix, sizeof(kTextPrefix) - 1) != 0) continue;
    name += sizeof(kTextPrefix) - 1;
    if (AddEntry(image, name, strlen(name)) == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult Read(const void* data, Image* image) {
  switch (MagicOf(data)) {
    case kFatbinMagic:
      return ReadFatbin(data, image);
    case kFatbinWrapperMagic: {
      FatbinWrapper wrapper;
      memcpy(&wrapper, data, sizeof(wrapper));
      return ReadFatbin(wrapper.blob, image);
    }
    default:
      break;
  }
  const char* text = static_cast<const char*>(data);
  if (memcmp(text, ELFMAG, SELFMAG) == 0) return ReadElf(data, image);
  image->code_bytes = strlen(text);
  if (strstr(text, ".version") == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  return ReadPtx(text, image);
}

}  // namespace

CUresult Load(const void* data, Image** loaded) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* image = static_cast<Image*>(calloc(1, sizeof(Image)));
  if (image == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  image->references = 1;
  // Shorter than any header, and read byte by byte up to the end of the text.
  const bool tiny = memchr(data, '\0', sizeof(uint32_t)) == static_cast<const char*>(data);
  const CUresult result = tiny ? CUDA_ERROR_INVALID_IMAGE : Read(data, image);
  if (result == CUDA_SUCCESS) {
    *loaded = image;
  } else {
    Release(image);
  }
  return result;
}

CUresult LoadFile(const char* path, Image** loaded) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "rbe");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  char* data = nullptr;
  size_t bytes = 0;
  size_t room = 0;
  for (;;) {
    if (bytes + 1 >= room) {
      room = room != 0 ? room * 2 : 65'536;
      char* grown = static_cast<char*>(realloc(data, room));
      if (grown == nullptr) break;
      data = grown;
    }
    const size_t got = fread(data + bytes, 1, room - bytes - 1, file);
    bytes += got;
    if (got == 0) break;
  }
  fclose(file);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (data != nullptr && bytes >= sizeof(uint32_t)) {
    data[bytes] = '\0';
    result = Load(data, loaded);
  } else if (data != nullptr) {
    result = CUDA_ERROR_INVALID_IMAGE;
  }
  free(data);
  return result;
}

void Retain(Image* image) { ++image->references; }

void Release(Image* image) {
  if (--image->references != 0) return;
  for (Entry* entry : image->entries) {
    free(entry->name);
    entry->parameters.Free();
    free(entry);
  }
  for (Variable& variable : image->variables) free(variable.name);
  image->entries.Free();
  image->variables.Free();
  free(image);
}

Entry* FindEntry(Image* image, const char* name) {
  for (Entry* entry : image->entries) {
    if (strcmp(entry->name, name) == 0) return entry;
  }
  return image->is_opaque ? AddEntry(image, name, strlen(name)) : nullptr;
}

const Variable* FindVariable(const Image* image, const char* name) {
  for (const Variable& variable : image->variables) {
    if (strcmp(variable.name, name) == 0) return &variable;
  }
  return nullptr;
}

Entry* AddEntry(Image* image, const char* name, size_t name_length) {
  auto* entry = static_cast<Entry*>(calloc(1, sizeof(Entry)));
  if (entry == nullptr) return nullptr;
  entry->name = CopyName(name, name_length);
  if (entry->name != nullptr && image->entries.Push(entry)) return entry;
  free(entry->name);
  free(entry);
  return nullptr;
}

bool AddVariable(Image* image, const char* name, size_t name_length, uint64_t bytes,
                 bool is_managed) {
  char* copy = CopyName(name, name_length);
  if (copy != nullptr && image->variables.Push({copy, bytes, is_managed})) return true;
  free(copy);
  return false;
}

bool AddParameter(Entry* entry, uint32_t bytes, uint32_t alignment) {
  const uint32_t offset = (entry->parameter_bytes + alignment - 1) / alignment * alignment;
  entry->parameter_bytes = offset + bytes;
  return entry->parameters.Push({offset, bytes});
}

}  // namespace sim::image
