// Facts: what a conformance program has to say, as one JSON object on stdout.
//
// Every entry stands on a line of its own and is flushed at once, so that a program that dies still
// tells what it had learned.  A name that begins with '~' is a measurement: kept for the record,
// never compared.  Everything else must be the same on a real GPU and on the simulator.
// Must not know any particular API call.

#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

#include "driver_abi.h"

namespace conformance {

struct CodeName {
  int code;
  const char* name;
};

// The driver API's codes that programs meet, without the CUDA_ERROR_ prefix.
inline constexpr CodeName kCudaCodes[] = {
    {0, "SUCCESS"},
    {1, "INVALID_VALUE"},
    {2, "OUT_OF_MEMORY"},
    {3, "NOT_INITIALIZED"},
    {4, "DEINITIALIZED"},
    {100, "NO_DEVICE"},
    {101, "INVALID_DEVICE"},
    {200, "INVALID_IMAGE"},
    {201, "INVALID_CONTEXT"},
    {202, "CONTEXT_ALREADY_CURRENT"},
    {205, "MAP_FAILED"},
    {206, "UNMAP_FAILED"},
    {207, "ARRAY_IS_MAPPED"},
    {208, "ALREADY_MAPPED"},
    {209, "NO_BINARY_FOR_GPU"},
    {211, "NOT_MAPPED"},
    {215, "UNSUPPORTED_LIMIT"},
    {216, "CONTEXT_ALREADY_IN_USE"},
    {217, "PEER_ACCESS_UNSUPPORTED"},
    {218, "INVALID_PTX"},
    {221, "JIT_COMPILER_NOT_FOUND"},
    {222, "UNSUPPORTED_PTX_VERSION"},
    {300, "INVALID_SOURCE"},
    {301, "FILE_NOT_FOUND"},
    {304, "OPERATING_SYSTEM"},
    {400, "INVALID_HANDLE"},
    {401, "ILLEGAL_STATE"},
    {500, "NOT_FOUND"},
    {600, "NOT_READY"},
    {700, "ILLEGAL_ADDRESS"},
    {701, "LAUNCH_OUT_OF_RESOURCES"},
    {704, "PEER_ACCESS_ALREADY_ENABLED"},
    {705, "PEER_ACCESS_NOT_ENABLED"},
    {708, "PRIMARY_CONTEXT_ACTIVE"},
    {709, "CONTEXT_IS_DESTROYED"},
    {711, "TOO_MANY_PEERS"},
    {712, "HOST_MEMORY_ALREADY_REGISTERED"},
    {713, "HOST_MEMORY_NOT_REGISTERED"},
    {719, "LAUNCH_FAILED"},
    {720, "COOPERATIVE_LAUNCH_TOO_LARGE"},
    {800, "NOT_PERMITTED"},
    {801, "NOT_SUPPORTED"},
    {900, "STREAM_CAPTURE_UNSUPPORTED"},
    {901, "STREAM_CAPTURE_INVALIDATED"},
    {902, "STREAM_CAPTURE_MERGE"},
    {903, "STREAM_CAPTURE_UNMATCHED"},
    {904, "STREAM_CAPTURE_UNJOINED"},
    {905, "STREAM_CAPTURE_ISOLATION"},
    {906, "STREAM_CAPTURE_IMPLICIT"},
    {907, "CAPTURED_EVENT"},
    {908, "STREAM_CAPTURE_WRONG_THREAD"},
    {910, "GRAPH_EXEC_UPDATE_FAILURE"},
    {914, "INVALID_RESOURCE_TYPE"},
    {999, "UNKNOWN"},
};

// NVML's codes, without the NVML_ and ERROR_ prefixes.
inline constexpr CodeName kNvmlCodes[] = {
    {0, "SUCCESS"},           {1, "UNINITIALIZED"},
    {2, "INVALID_ARGUMENT"},  {3, "NOT_SUPPORTED"},
    {4, "NO_PERMISSION"},     {6, "NOT_FOUND"},
    {7, "INSUFFICIENT_SIZE"}, {9, "DRIVER_NOT_LOADED"},
    {10, "TIMEOUT"},          {13, "FUNCTION_NOT_FOUND"},
    {17, "OPERATING_SYSTEM"}, {25, "ARGUMENT_VERSION_MISMATCH"},
    {26, "DEPRECATED"},       {27, "NOT_READY"},
    {999, "UNKNOWN"},
};

template <size_t kCount>
std::string NameOf(const CodeName (&table)[kCount], int code) {
  for (const CodeName& entry : table) {
    if (entry.code == code) return entry.name;
  }
  return "code " + std::to_string(code);
}

inline std::string Name(CUresult code) { return NameOf(kCudaCodes, static_cast<int>(code)); }
inline std::string Name(nvmlReturn_t code) { return NameOf(kNvmlCodes, static_cast<int>(code)); }

class Facts {
 public:
  // A hung driver call must end: `watchdog_seconds` later the process dies of SIGALRM.
  explicit Facts(const char* program, unsigned watchdog_seconds = 90) {
    alarm(watchdog_seconds);
    std::printf("{\n\"program\": \"%s\"", program);
    std::fflush(stdout);
  }
  ~Facts() {
    std::printf("\n}\n");
    std::fflush(stdout);
  }
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;

  void Code(const std::string& name, CUresult code) { Text(name, Name(code)); }
  void Code(const std::string& name, nvmlReturn_t code) { Text(name, Name(code)); }

  // A refusal: its code and what it left in the output ("untouched", "null", "written").
  void Refused(const std::string& name, CUresult code, const char* left) {
    Text(name, Name(code) + " " + left);
  }
  void Is(const std::string& name, bool truth) { Raw(name, truth ? "true" : "false"); }
  void Number(const std::string& name, long long value) { Raw(name, std::to_string(value)); }

  // `value` must hold no character that JSON escapes but quote and backslash.
  void Text(const std::string& name, const std::string& value) {
    std::string quoted = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    Raw(name, quoted + "\"");
  }

  // Recorded, not compared.
  void Measured(const std::string& name, long long value) {
    Raw("~" + name, std::to_string(value));
  }

 private:
  static void Raw(const std::string& name, const std::string& json) {
    std::printf(",\n\"%s\": %s", name.c_str(), json.c_str());
    std::fflush(stdout);
  }
};

}  // namespace conformance
