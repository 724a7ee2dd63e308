// What commands do with pools that others may open; answers as the program that includes it does.
#pragma once

#include <string.h>

#include <iostream>
#include <sstream>
#include <string>

#include "support/fence_program.h"

inline CUresult MakeSharedPool(CUmemoryPool* pool) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return cuMemPoolCreate(pool, &props);
}

// The driver's code and the eight words of what it gave out.
inline CUresult ExportPointer(CUdeviceptr address) {
  CUmemPoolPtrExportData data = {};
  uint64_t words[8];
  static_assert(sizeof words == sizeof data);
  const CUresult code = cuMemPoolExportPointer(&data, address);
  memcpy(words, &data, sizeof data);
  std::cout << static_cast<int>(code);
  for (const uint64_t word : words) std::cout << ' ' << word;
  std::cout << std::endl;
  return code;
}

// False: none of these commands. `*answer`: what they give beside the code.
inline bool Pools(const std::string& what, std::istringstream& words, CUstream stream,
                  CUresult* code, uint64_t* answer) {
  const auto next = [&words] {
    uint64_t number = 0;
    words >> number;
    return number;
  };
  const auto next_pool = [&next] { return reinterpret_cast<CUmemoryPool>(next()); };
  CUmemoryPool pool = nullptr;
  if (what == "pool") {
    *code = MakeSharedPool(&pool);
    *answer = reinterpret_cast<uint64_t>(pool);
  } else if (what == "keep") {
    pool = next_pool();
    cuuint64_t most = UINT64_MAX;
    *code = cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most);
  } else if (what == "take") {
    CUdeviceptr address = 0;
    pool = next_pool();
    *code = cuMemAllocFromPoolAsync(&address, next(), pool, stream);
    *answer = address;
  } else if (what == "free_async") {
    *code = cuMemFreeAsync(next(), stream);
  } else if (what == "trim_pool") {
    *code = cuMemPoolTrimTo(next_pool(), 0);
  } else if (what == "end_pool") {
    *code = cuMemPoolDestroy(next_pool());
  } else if (what == "export_pool") {
    int fd = -1;
    *code = cuMemPoolExportToShareableHandle(&fd, next_pool(),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    *answer = static_cast<uint64_t>(fd);
  } else if (what == "import_pool") {
    *code = cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(next()),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    *answer = reinterpret_cast<uint64_t>(pool);
  } else if (what == "import_pointer") {
    pool = next_pool();
    CUmemPoolPtrExportData data = {};
    uint64_t parts[8];
    for (uint64_t& part : parts) part = next();
    memcpy(&data, parts, sizeof data);
    CUdeviceptr address = 0;
    *code = cuMemPoolImportPointer(&address, pool, &data);
    *answer = address;
  } else {
    return false;
  }
  return true;
}
