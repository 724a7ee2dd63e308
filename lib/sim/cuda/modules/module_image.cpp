// Telling images apart and reading them: binary ones, and PTX as a list of declarations, kernels
// with their parameters, variables with their sizes; instructions are skipped. Must not know
// contexts, handles or memory.
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

namespace {

// What driver 580 reads.
constexpr long kNewestMajor = 9;
constexpr long kNewestMinor = 0;

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '.' || c == '%';
}

struct Token {
  const char* text;
  size_t length;

  bool Is(const char* word) const {
    return strlen(word) == length && memcmp(text, word, length) == 0;
  }
  bool empty() const { return length == 0; }
};

// Words (with their leading dot) and single punctuation marks; comments, strings and blanks
// skipped.
class Tokens {
 public:
  explicit Tokens(const char* text) : at_(text) {}

  Token Next() {
    SkipBlanks();
    const char* begin = at_;
    while (IsWordByte(*at_)) ++at_;
    if (at_ == begin && *at_ != '\0') ++at_;
    return {begin, static_cast<size_t>(at_ - begin)};
  }

  Token Peek() {
    const char* before = at_;
    const Token token = Next();
    at_ = before;
    return token;
  }

 private:
  void SkipBlanks() {
    for (;;) {
      if (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r') {
        ++at_;
      } else if (at_[0] == '/' && at_[1] == '/') {
        while (*at_ != '\0' && *at_ != '\n') ++at_;
      } else if (at_[0] == '/' && at_[1] == '*') {
        const char* end = strstr(at_ + 2, "*/");
        at_ = end != nullptr ? end + 2 : at_ + strlen(at_);
      } else if (*at_ == '"') {
        const char* end = strchr(at_ + 1, '"');
        at_ = end != nullptr ? end + 1 : at_ + strlen(at_);
      } else {
        return;
      }
    }
  }

  const char* at_;
};

// Bytes of a fundamental type such as .u64 or .b8; 0 for any other word.
uint32_t TypeBytes(const Token& token) {
  if (token.length < 3 || token.text[0] != '.' || strchr("ubsf", token.text[1]) == nullptr) {
    return token.Is(".pred") ? 1 : 0;
  }
  const long bits = strtol(token.text + 2, nullptr, 10);
  return bits >= 8 && bits <= 128 ? static_cast<uint32_t>(bits / 8) : 0;
}

uint64_t NumberIn(const Token& token) { return strtoull(token.text, nullptr, 0); }

// A declaration after its state space: `.align 8 .b8 name[16]`, up to the first token behind it.
struct Declaration {
  Token name;
  uint64_t bytes;
  uint32_t alignment;
  bool is_managed;
};

Declaration ReadDeclaration(Tokens& tokens) {
  Declaration found = {{nullptr, 0}, 0, 1, false};
  uint32_t element_bytes = 0;
  uint32_t vector = 1;
  for (;;) {
    const Token token = tokens.Next();
    if (token.empty()) return found;
    if (token.Is(".align")) {
      // Behind the type it describes what a pointer points to.
      const auto alignment = static_cast<uint32_t>(NumberIn(tokens.Next()));
      if (element_bytes == 0 && alignment != 0) found.alignment = alignment;
    } else if (token.Is(".attribute")) {
      tokens.Next();
      found.is_managed = tokens.Next().Is(".managed");
      while (!tokens.Peek().empty() && !tokens.Next().Is(")")) {
      }
    } else if (token.Is(".v2") || token.Is(".v4")) {
      vector = static_cast<uint32_t>(token.text[2] - '0');
    } else if (TypeBytes(token) != 0) {
      element_bytes = TypeBytes(token);
    } else if (token.text[0] != '.') {
      found.name = token;
      break;
    }
  }
  found.bytes = uint64_t{element_bytes} * vector;
  if (found.alignment <= 1 && found.bytes != 0)
    found.alignment = static_cast<uint32_t>(found.bytes);
  while (tokens.Peek().Is("[")) {
    tokens.Next();
    const Token count = tokens.Next();
    if (count.Is("]")) continue;
    found.bytes *= NumberIn(count);
    tokens.Next();
  }
  return found;
}

// `( .param .u64 a, .param .align 8 .b8 b[24] )`. False when it does not look like that.
bool ReadParameters(Tokens& tokens, Entry* entry) {
  entry->has_signature = true;
  if (!tokens.Peek().Is("(")) return true;
  tokens.Next();
  if (tokens.Peek().Is(")")) return !tokens.Next().empty();
  for (;;) {
    if (!tokens.Next().Is(".param")) return false;
    // Pointer notes (`.ptr .global .align 16`) stand between the type and the name.
    const Declaration parameter = ReadDeclaration(tokens);
    if (parameter.name.empty() || parameter.bytes == 0) return false;
    const uint32_t natural = parameter.alignment > 16 ? 16 : parameter.alignment;
    if (!AddParameter(entry, static_cast<uint32_t>(parameter.bytes), natural)) return false;
    const Token next = tokens.Next();
    if (next.Is(")")) return true;
    if (!next.Is(",")) return false;
  }
}

// From behind the parameters to the end of the body: limits, and what it keeps in shared and local
// memory.
bool ReadBody(Tokens& tokens, Entry* entry) {
  int depth = 0;
  for (;;) {
    const Token token = tokens.Next();
    if (token.empty()) return false;
    if (token.Is(".maxntid") || token.Is(".reqntid")) {
      entry->max_threads = static_cast<uint32_t>(NumberIn(tokens.Next()));
      while (tokens.Peek().Is(",")) {
        tokens.Next();
        entry->max_threads *= static_cast<uint32_t>(NumberIn(tokens.Next()));
      }
    } else if (token.Is(".shared")) {
      entry->shared_bytes += static_cast<uint32_t>(ReadDeclaration(tokens).bytes);
    } else if (token.Is(".local")) {
      entry->local_bytes += static_cast<uint32_t>(ReadDeclaration(tokens).bytes);
    } else if (token.Is("{")) {
      ++depth;
    } else if (token.Is("}") && --depth == 0) {
      return true;
    } else if (token.Is(";") && depth == 0) {
      return true;  // only declared
    }
  }
}

bool SkipBody(Tokens& tokens) {
  Entry ignored = {};
  return ReadBody(tokens, &ignored);
}

bool ReadEntry(Tokens& tokens, Image* image) {
  const Token name = tokens.Next();
  if (name.empty() || !IsWordByte(name.text[0])) return false;
  Entry* entry = AddEntry(image, name.text, name.length);
  return entry != nullptr && ReadParameters(tokens, entry) && ReadBody(tokens, entry);
}

bool ReadVariable(Tokens& tokens, Image* image, bool is_external) {
  const Declaration variable = ReadDeclaration(tokens);
  if (variable.name.empty()) return false;
  while (!tokens.Next().Is(";")) {
    if (tokens.Peek().empty()) return false;  // an initialiser without an end
  }
  return is_external || AddVariable(image, variable.name.text, variable.name.length, variable.bytes,
                                    variable.is_managed);
}

// Whether the driver is too old for a version such as 8.3.
bool IsFromTheFuture(const Token& version) {
  char* point = nullptr;
  const long major = strtol(version.text, &point, 10);
  const long minor = *point == '.' ? strtol(point + 1, nullptr, 10) : 0;
  return major > kNewestMajor || (major == kNewestMajor && minor > kNewestMinor);
}

// `sm_90a, texmode_independent`. False when the GPU is older than that.
bool ReadTarget(Tokens& tokens, Image* image) {
  const Token target = tokens.Next();
  if (target.length > 3 && memcmp(target.text, "sm_", 3) == 0) {
    image->target = static_cast<int>(strtol(target.text + 3, nullptr, 10));
  }
  while (tokens.Peek().Is(",")) {
    tokens.Next();
    tokens.Next();
  }
  return image->target <= kGpuTarget;
}

// What stands behind a directive that says nothing here, up to the next: `1 "file.cu"`, `a, b;`,
// `{ .b8 1 }`.
bool SkipArguments(Tokens& tokens) {
  for (;;) {
    const Token token = tokens.Peek();
    if (token.empty() || token.text[0] == '.' || token.text[0] == '@') return true;
    tokens.Next();
    if (!token.Is("{")) continue;
    while (!tokens.Next().Is("}")) {
      if (tokens.Peek().empty()) return false;
    }
  }
}

// One directive of a module and what belongs to it. False when that is no PTX.
bool ReadStatement(Tokens& tokens, const Token& directive, Image* image, bool is_external) {
  if (directive.Is(".entry")) return ReadEntry(tokens, image);
  if (directive.Is(".func")) return SkipBody(tokens);
  if (directive.Is(".global") || directive.Is(".const")) {
    return ReadVariable(tokens, image, is_external);
  }
  if (directive.Is(".target")) return ReadTarget(tokens, image);
  if (directive.Is(".address_size")) return NumberIn(tokens.Next()) != 0;
  if (directive.Is(".visible") || directive.Is(".weak") || directive.Is(".extern")) return true;
  return SkipArguments(tokens);
}

}  // namespace

CUresult ReadPtx(const char* text, Image* image) {
  Tokens tokens(text);
  bool is_external = false;
  for (;;) {
    const Token token = tokens.Next();
    if (token.empty()) return CUDA_SUCCESS;
    if (token.text[0] != '.' && token.text[0] != '@') return CUDA_ERROR_INVALID_PTX;
    if (token.Is(".version")) {
      if (IsFromTheFuture(tokens.Next())) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    } else if (!ReadStatement(tokens, token, image, is_external)) {
      return CUDA_ERROR_INVALID_PTX;
    }
    is_external =
        token.Is(".extern") || (is_external && (token.Is(".visible") || token.Is(".weak")));
  }
}

}  // namespace sim::image
